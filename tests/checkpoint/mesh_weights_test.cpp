// Parameters and states of programs on a mesh: their ranks save the same bytes as one rank, and load them.
#include <gtest/gtest.h>

#include <numeric>

#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "comm/world.h"
#include "fixtures/parted_family.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/tiny_program.h"
#include "models/parametrization.h"
#include "program/initialize.h"

namespace strata::checkpoint {
namespace {

struct Layout {
  const char* name;
  graph::Mesh mesh;
  int zero = 0;
  optim::Optimizer optimizer = optim::AdamW{};  // for all parameters but vectors
};

class MeshWeights : public testing::TestWithParam<std::tuple<const char*, Layout>> {
 protected:
  MeshWeights() { set_compute_threads(1); }
  ~MeshWeights() override { set_compute_threads(available_processors()); }

  static program::CompileOptions options_for(const graph::Mesh& mesh, int zero) {
    const std::string_view name = std::get<0>(GetParam());
    program::CompileOptions options =
        program::tiny_options(name == "parted-5m" ? "llama3-5m" : std::string(name));
    if (name == "parted-5m") options.model.family = &models::parted_family();
    options.zero = zero;
    options.rule_of = [optimizer = std::get<1>(GetParam()).optimizer](const std::string&,
                                                                      graph::ParameterRole role) {
      const bool takes = models::is_hidden_matrix(role) || !optimizer.is<optim::Muon>();
      return optim::one_rule({.optimizer = takes ? optimizer : optim::AdamW{}});
    };
    models::ModelConfig& model = options.model;
    model.hidden_size = 64;
    const bool grouped = name.starts_with("llama") || name.starts_with("parted");
    model.heads = 4;
    model.kv_heads = grouped ? 2 : 4;
    options.mesh = mesh;
    return options;
  }

  // Weights from the seed; states with different values for each element, row or column.
  static void fill(program::Executor& executor, uint64_t seed) {
    program::initialize_weights(executor, seed + 1);
    const program::Program& program = executor.program(0);
    std::vector<std::pair<std::string, std::vector<float>>> states;
    for (const optim::State& state : program.states) {
      const std::string& parameter = program.graph.value(state.parameter).name;
      const program::Persistent& value = executor.set().at(program.graph.value(state.value).name);
      std::vector<float> values = executor.read_all<float>(parameter);
      const size_t rows = static_cast<size_t>(executor.set().at(parameter).shape[0]);
      if (state.layout == optim::StateLayout::kRows) {
        for (size_t i = 0; i < rows; ++i) values[i] = values[i * values.size() / rows];
        values.resize(rows);
      } else if (state.layout == optim::StateLayout::kTensor) {
        values.resize(values.size() / rows);
        std::iota(values.begin(), values.end(), static_cast<float>(seed));
      }
      EXPECT_EQ(std::ssize(values) * 4, value.bytes) << value.name;
      states.emplace_back(value.name, std::move(values));
    }
    EXPECT_GT(states.size(), 10u);
    program::initialize_weights(executor, seed);
    for (const auto& [name, values] : states) executor.write(name, values);
  }

  static void save(const Path& folder, const models::ModelConfig& model, const program::Executor& executor) {
    CheckpointContent content;
    content.model.config_json = "{}";
    content.model.weights = read_only(weight_views(model, executor));
    content.optimizer = read_only(state_views(model, executor));
    save_checkpoint(posix_file_system(), folder, content, executor.ranks().all());
  }

  static std::vector<std::string> bytes_of(const program::Executor& executor) {
    std::vector<std::string> out;
    for (const program::Persistent& value : executor.set().persistent) {
      if (value.role != graph::Role::kParameter && value.role != graph::Role::kState) continue;
      const auto bytes = executor.read_all<char>(value.name);
      out.emplace_back(bytes.begin(), bytes.end());
    }
    return out;
  }
};

TEST_P(MeshWeights, AreSavedLikeThoseOfOneRankAndLoaded) {
  const graph::Mesh& mesh = std::get<1>(GetParam()).mesh;
  ScratchFolder scratch;
  const auto alone = options_for(graph::Mesh::of_one(), 0);
  program::Executor one(program::compile({program::tiny_request()}, alone), device::make_cpu_device(1));
  fill(one, 3);
  save(scratch / "one", alone.model, one);

  const auto options = options_for(mesh, std::get<1>(GetParam()).zero);
  const auto set = program::compile({program::tiny_request()}, options);
  comm::run_local_ranks(static_cast<int>(mesh.ranks()), [&](comm::World& world) {
    set_compute_threads(1);
    const program::Ranks ranks(world, options);
    const auto on_rank = [&] { return program::Executor(set, device::make_cpu_device(1), ranks); };
    program::Executor executor = on_rank(), other = on_rank(), third = on_rank();
    fill(executor, 3);
    save(scratch / "many", options.model, executor);
    load_checkpoint(scratch / "one/step-00000000", weight_views(options.model, other),
                    state_views(options.model, other), ranks.all());
    EXPECT_TRUE(bytes_of(other) == bytes_of(executor)) << "rank " << world.rank();
    WeightSource source;
    source.source = open_tensors(scratch / "one/step-00000000");
    load_weights(source, options.model, third);
    for (const program::Persistent& value : set->persistent) {
      if (value.role != graph::Role::kParameter) continue;
      EXPECT_TRUE(third.read_all<char>(value.name) == executor.read_all<char>(value.name)) << value.name;
    }
  });
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(scratch / "many/step-00000000" / file) ==
                read_file(scratch / "one/step-00000000" / file))
        << file;
}

INSTANTIATE_TEST_SUITE_P(
    , MeshWeights,
    testing::Combine(
        testing::Values("llama3-5m", "parted-5m", "gpt2-124m", "pythia-70m"),
        testing::Values(
            Layout{"tensor2", graph::Mesh::of(1, 1, 1, 2)}, Layout{"replicate2", graph::Mesh::of(2, 1, 1, 1)},
            Layout{"shard2_tensor2", graph::Mesh::of(1, 2, 1, 2)},
            // Llama then has fewer key-value heads than ranks.
            Layout{"tensor4", graph::Mesh::of(1, 1, 1, 4)},
            Layout{"zero3_shard2_tensor4_muon", graph::Mesh::of(1, 2, 1, 4), 3, optim::Muon{}},
            Layout{"zero1_shard3_muon", graph::Mesh::of(1, 3, 1, 1), 1, optim::Muon{}},
            Layout{"zero2_shard3_adafactor", graph::Mesh::of(1, 3, 1, 1), 2, optim::Adafactor{}},
            Layout{"zero3_replicate2_shard2_adafactor", graph::Mesh::of(2, 2, 1, 1), 3, optim::Adafactor{}})),
    [](const auto& one) {
      const std::string preset = std::get<0>(one.param);
      return preset.substr(0, preset.find('-')) + "_" + std::get<1>(one.param).name;
    });

}  // namespace
}  // namespace strata::checkpoint
