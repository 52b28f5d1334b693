// Delayed scaling in programs: histories follow the tensors of a step, whatever its micro-batches and ranks are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "mesh_model.h"
#include "ops/quantize/quantize.h"
#include "pipeline_model.h"

namespace strata::program {
namespace {

using graph::Mesh;

constexpr int64_t kHistory = 3;

CompileOptions delayed_options(const std::string& preset,
                               Precision::Gathers gathers = Precision::Gathers::kCodesWherePossible) {
  CompileOptions options = tiny_options(preset);
  options.rule_of = steady_rule;
  options.model = small_model(preset);
  options.recompute = Recompute::kNone;
  Precision precision{.recipe = *quantize::find_recipe("delayed"),
                      .sums = {},
                      .gathers = gathers,
                      .keeps = [](const auto&, const auto&) { return false; },
                      .history = kHistory};
  options.precision = std::make_shared<const Precision>(std::move(precision));
  return options;
}

// The greatest magnitudes of all tensors that a step quantises, by their histories, and the scales of their codes.
class Watch final : public Executor::Observer {
 public:
  explicit Watch(Executor& executor) : executor_(executor), previous_(executor.observe(this)) {}
  ~Watch() override { executor_.observe(previous_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  bool wants_results() const override { return true; }

  void instruction(size_t index, const Action& action, size_t at, double, double) override {
    const Program& program = executor_.program(index);
    const Instruction& instruction = program.list_of(action)[at];
    const graph::Node& node = program.node_of(instruction);
    if (node.op != &ops::Quantize::def) return;
    const graph::Value& x = program.graph.value(node.inputs[0]);
    ASSERT_EQ(x.dtype, DType::kF32);
    std::vector<float> values(static_cast<size_t>(x.shape.elements()));
    executor_.download_operand(index, action, instruction, 0, values.data(), x.bytes());
    const std::string& history = program.graph.value(node.inputs[1]).name;
    for (const float value : values) greatest[history] = std::max(greatest[history], std::abs(value));
    float scale = 0;
    executor_.download_operand(index, action, instruction, node.inputs.size() + 1, &scale, sizeof scale);
    scales[history].push_back(scale);
  }

  std::map<std::string, float> greatest;
  std::map<std::string, std::vector<float>> scales;

 private:
  Executor& executor_;
  Executor::Observer* previous_;
};

std::vector<std::string> histories_of(const ProgramSet& set) {
  std::vector<std::string> names;
  const Program& program = set.programs[0];
  for (const optim::State& state : program.states)
    if (state.name.starts_with("history_")) names.push_back(program.graph.value(state.value).name);
  return names;
}

// A run of a few steps, in one of which inputs have outliers, and which skips one.
class Steps {
 public:
  explicit Steps(const std::shared_ptr<const ProgramSet>& set) : run_(set) {}

  void all() {
    for (int step = 0; step < 6; ++step) {
      if (step == 1) scale_norms(64);
      if (step == 2) scale_norms(1.0f / 64);
      take_step();
    }
    EXPECT_LT(history("history_input.layers.0.attention.qkv.weight")[0], outlier_ / 8)
        << "it has left the history";
  }

  void skip_one() {
    const auto before = read_all();
    auto values = executor().read_all<float>("embedding.weight");
    std::fill(values.begin(), values.end(), std::nanf(""));
    executor().write("embedding.weight", values);
    run_.step();
    EXPECT_TRUE(
        std::isnan(executor().read_all<float>("greatest.history_input.layers.0.attention.qkv.weight")[0]));
    EXPECT_EQ(read_all(), before);
  }

  std::map<std::string, std::vector<float>> read_all() {
    std::map<std::string, std::vector<float>> all;
    for (const std::string& name : histories_of(executor().set())) all[name] = history(name);
    return all;
  }

 private:
  Executor& executor() { return run_.executor; }
  std::vector<float> history(const std::string& name) { return executor().read_all<float>(name); }

  void scale_norms(float factor) {
    auto values = executor().read_all<float>("layers.0.attention_norm.weight");
    for (float& value : values) value *= factor;
    executor().write("layers.0.attention_norm.weight", values);
  }

  void take_step() {
    const auto before = read_all();
    std::map<std::string, float> greatest;
    for (const auto& [name, unused] : before) {
      if (!name.starts_with("history_weight.")) continue;
      for (const float weight : executor().read_all<float>(name.substr(name.find('.') + 1)))
        greatest[name] = std::max(greatest[name], std::abs(weight));
    }
    Watch watch(executor());
    run_.step();
    for (const auto& [name, value] : watch.greatest)
      if (!name.starts_with("history_weight.")) greatest[name] = value;
    ASSERT_EQ(greatest.size(), before.size());
    for (const auto& [name, state] : before) {
      // By hand: the oldest leaves, the step's greatest comes, and the greatest of all is in force.
      std::vector<float> wanted(state.begin() + 2, state.end());
      wanted.push_back(greatest[name]);
      wanted.insert(wanted.begin(), *std::max_element(wanted.begin(), wanted.end()));
      const std::vector<float> now = history(name);
      EXPECT_EQ(now, wanted) << name;
      // Weights are quantised after the update, with the scales in force then.
      const bool is_weight = name.starts_with("history_weight."),
                 is_gradient = name.starts_with("history_gradient.");
      const float in_force = is_weight ? now[0] : state[0], largest = is_gradient ? 57344.0f : 448.0f;
      EXPECT_EQ(watch.scales[name].size(), is_weight ? 1U : 2U) << name << ": once, or for each micro-batch";
      for (const float scale : watch.scales[name])
        EXPECT_FLOAT_EQ(scale, in_force == 0 ? 1.0f : in_force / largest) << name;
    }
    outlier_ = std::max(outlier_, history("history_input.layers.0.attention.qkv.weight")[0]);
  }

  TinyRun run_;
  float outlier_ = 0;
};

TEST(DelayedScaling, HistoriesAreThoseOfTheSteps) {
  const auto set = compile({tiny_request(2)}, delayed_options("llama3-5m"));
  Steps first(set), second(set);
  first.all();
  second.all();
  EXPECT_EQ(first.read_all(), second.read_all());
  EXPECT_EQ(first.read_all().size(), 3U * 2 * 4) << "three of each linear layer";
  first.skip_one();
}

struct DelayedLayout {
  const char* name;
  Mesh mesh = Mesh::of_one();
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  Precision::Gathers gathers = Precision::Gathers::kCodesWherePossible;
  const char* preset = "llama3-5m";
  bool sequence_parallel = true;
  layers::ContextKind context = layers::ContextKind::kAllGather;
};

std::ostream& operator<<(std::ostream& out, const DelayedLayout& layout) {
  return out << layout.name;
}

MeshRanks run_steps(CompileOptions options, int steps) {
  std::vector<std::shared_ptr<const ProgramSet>> sets;
  const int64_t stages = options.mesh.size(graph::Axis::kPipeline);
  for (int32_t place = 0; place < stages; ++place) {
    const CompileOptions mine =
        stages == 1
            ? options
            : at_place(options, pipeline_of({"1f1b", static_cast<int32_t>(stages), 2, 1}, options.model),
                       place);
    sets.push_back(compile({request_for(mine.model, mine.mesh.batch_ranks())}, mine));
  }
  return MeshRanks(std::move(sets), 3, [steps](Executor& executor, const graph::Coordinates& at) {
    fill_batch(executor, at);
    for (int step = 0; step < steps; ++step) {
      write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
      executor.run_script(0);
    }
  });
}

class DelayedOnAMesh : public testing::TestWithParam<DelayedLayout> {};

// All ranks have the same histories, bit for bit, and those of one rank.
TEST_P(DelayedOnAMesh, HasTheHistoriesOfOneRank) {
  const DelayedLayout& layout = GetParam();
  const CompileOptions alone = delayed_options(layout.preset);
  CompileOptions options = delayed_options(layout.preset, layout.gathers);
  options.mesh = layout.mesh;
  options.zero = layout.zero;
  options.recompute = layout.recompute;
  options.sequence_parallel = layout.sequence_parallel;
  options.context_kind = layout.context;
  if (options.model.experts.count > 0) options.experts = {2};
  const bool sums_alike =
      layout.mesh.size(graph::Axis::kTensor) * layout.mesh.size(graph::Axis::kContext) == 1;
  for (const int steps : {1, 4}) {
    const MeshRanks one = run_steps(alone, steps), ranks = run_steps(options, steps);
    const std::vector<std::string> names = histories_of(one.set());
    ASSERT_FALSE(names.empty());
    for (const std::string& name : names) {
      const Tensor found = ranks.whole(name), wanted = one.whole(name);
      EXPECT_GT(wanted.values[0], 0) << name;
      if (steps == 1 && sums_alike) {
        EXPECT_EQ(found.values, wanted.values) << name;
      } else {
        // Sums in another order may round to the next code, and codes of e5m2 are up to a quarter apart.
        expect_near(found, wanted, 0.15, name);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, DelayedOnAMesh,
    testing::Values(
        DelayedLayout{"replicate2", Mesh::of(2, 1, 1, 1)},
        DelayedLayout{"zero1_shard2", Mesh::of(1, 2, 1, 1), 1},
        DelayedLayout{"zero3_shard2", Mesh::of(1, 2, 1, 1), 3},
        DelayedLayout{"zero3_shard2_recomputed", Mesh::of(1, 2, 1, 1), 3, Recompute::kFull},
        DelayedLayout{"zero3_shard2_weights", Mesh::of(1, 2, 1, 1), 3, Recompute::kNone,
                      Precision::Gathers::kWeights},
        DelayedLayout{"tensor2", Mesh::of(1, 1, 1, 2)},
        DelayedLayout{"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), 3},
        DelayedLayout{"context2", Mesh::of(1, 1, 2, 1)}, DelayedLayout{"pipeline2", Mesh::of(1, 1, 1, 1, 2)},
        DelayedLayout{"recomputed", Mesh::of_one(), 0, Recompute::kFull},
        DelayedLayout{"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "llama3-5m", false},
        DelayedLayout{"ulysses2", Mesh::of(1, 1, 2, 1), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "llama3-5m", true,
                      layers::ContextKind::kUlysses},
        // Two matmuls of one input and of one output's gradient, latents, and inputs of all decoder layers.
        DelayedLayout{"parallel_blocks_tensor2", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "pythia-14m"},
        DelayedLayout{"latents_tensor2", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "deepseek2-6m"},
        DelayedLayout{"encoder_decoder_tensor2", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "t5-small"},
        DelayedLayout{"expert2", Mesh::of(1, 2, 1, 1), 0, Recompute::kNone,
                      Precision::Gathers::kCodesWherePossible, "moe-30m-a10m"}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace strata::program
