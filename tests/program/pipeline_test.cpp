// A small model split into pipeline stages produces the losses, gradients and updates of one rank under every
// schedule.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fixtures/test_name.h"
#include "graph/reshard.h"
#include "mesh_model.h"
#include "pipeline_model.h"

namespace strata::program {
namespace {

struct Cut {
  const char* schedule;
  int32_t ranks = 2, virtual_stages = 1, micro_batches = 4;
  graph::Mesh mesh = graph::Mesh::of(1, 1, 1, 1, 2);
  int zero = 0;
  const char* layout = "";  // in Megatron-LM's notation; empty: as even as possible
};

void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.schedule << " on " << cut.ranks;
}

models::ModelConfig deep_model(const std::string& preset) {
  models::ModelConfig model = small_model(preset);
  set_layers(model, 8);
  if (model.encoder_layers > 0) model.encoder_layers = model.layers = 4;
  return model;
}

Pipeline pipeline_for(const Cut& cut, const models::ModelConfig& model) {
  return pipeline_of({cut.schedule, cut.ranks, cut.micro_batches, cut.virtual_stages}, model, cut.layout);
}

Request request_of(const CompileOptions& options, int32_t micro_batches) {
  Request request = request_for(options.model, options.mesh.batch_ranks());
  request.micro_batches = micro_batches;
  return request;
}

MeshRanks take_step(const CompileOptions& options, const Cut* cut, int32_t micro_batches) {
  std::vector<std::shared_ptr<const ProgramSet>> sets;
  for (int32_t place = 0; place < options.mesh.size(graph::Axis::kPipeline); ++place) {
    const CompileOptions mine =
        cut == nullptr ? options : at_place(options, pipeline_for(*cut, options.model), place);
    sets.push_back(compile({request_of(mine, micro_batches)}, mine));
  }
  return MeshRanks(std::move(sets), 3, [](Executor& executor, const graph::Coordinates& at) {
    fill_batch(executor, at);
    write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    executor.run_script(0);
  });
}

// The step of one rank, computed once for all schedules.
const MeshRanks& baseline(const std::string& preset, const CompileOptions& options, int32_t micro_batches) {
  static std::map<std::string, MeshRanks> known;
  const std::string key = fmt::format("{} {} {}", preset, name_of(options.activations), micro_batches);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, take_step(options, nullptr, micro_batches)).first->second;
}

class InAPipeline : public testing::TestWithParam<std::tuple<const char*, Cut, bool>> {};

TEST_P(InAPipeline, ComputesWhatOneRankComputes) {
  const auto& [preset, cut, bf16] = GetParam();
  CompileOptions options = tiny_options(preset_of(preset));
  options.rule_of = steady_rule;
  options.model = deep_model(preset);
  options.activations = bf16 ? DType::kBF16 : DType::kF32;
  const MeshRanks& one = baseline(preset, options, cut.micro_batches);
  options.mesh = cut.mesh;
  options.zero = cut.zero;
  const MeshRanks ranks = take_step(options, &cut, cut.micro_batches);
  const double tolerance = bf16 ? 6e-2 : 3e-5;
  const graph::Graph& graph = one.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const graph::ValueId id : {parameter.gradient, parameter.value}) {
      if (id == graph::kNone) continue;
      const std::string& name = graph.value(id).name;
      expect_near(ranks.whole(name), one.whole(name), tolerance, name);
    }
  }
  std::vector<const char*> names{"loss_sum", "grad_norm", "param_norm"};
  if (options.model.predict_layers > 0)
    names.insert(names.end(), {"predict.1.loss_sum", "predict.2.loss_sum"});
  for (const char* name : names) expect_near(ranks.whole(name), one.whole(name), tolerance, name);
}

const Cut kSchedules[] = {{"gpipe"},
                          {"1f1b"},
                          {"interleaved", 2, 2},
                          {"zb_h1"},
                          {"interleaved_zb", 2, 2},
                          {"zbv"},
                          {"zbv", 2, 1, 1},
                          {"v_half", 2, 1, 6},
                          {"v_min", 2, 1, 6},
                          {"dualpipev", 2, 1, 6},
                          {"1f1b", 4, 1, 3, graph::Mesh::of(1, 1, 1, 1, 4)},
                          {"1f1b", 3, 1, 1, graph::Mesh::of(1, 1, 1, 1, 3)}};
const Cut kMixed[] = {{"1f1b", 2, 1, 4, graph::Mesh::of(1, 2, 1, 1, 2), 3},
                      {"zbv", 2, 1, 4, graph::Mesh::of(1, 2, 1, 1, 2), 2},
                      {"1f1b", 2, 1, 4, graph::Mesh::of(2, 1, 1, 1, 2)},
                      {"zb_h1", 2, 1, 4, graph::Mesh::of(1, 1, 1, 2, 2)},
                      {"interleaved", 2, 2, 4, graph::Mesh::of(1, 1, 1, 2, 2)},
                      {"1f1b", 2, 1, 4, graph::Mesh::of(1, 2, 1, 2, 2), 1},
                      {"1f1b", 2, 1, 4, graph::Mesh::of(1, 1, 2, 1, 2)},
                      {"zbv", 2, 1, 4, graph::Mesh::of(1, 1, 2, 2, 2)}};
const Cut kUneven[] = {{"1f1b", 2, 1, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et*3|t*5L"},
                       {"1f1b", 2, 1, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et*4|t*4L"},
                       {"1f1b", 4, 1, 4, graph::Mesh::of(1, 1, 1, 1, 4), 0, "E|t*7|t|L"},
                       {"interleaved", 2, 2, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et||t*6|tL"},
                       // Both stages of a rank read the encoder's output.
                       {"zbv", 2, 1, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et*4|t|t|t*2L"},
                       {"zbv", 2, 1, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et*3|t*2|t|t*2L"}};

// What a program asks of the ranks of all other stages in its update, in the order in which it starts.
std::vector<std::string> collectives_of_update(const Program& program) {
  std::vector<std::string> early, rest;
  const auto add = [&](size_t i, std::vector<std::string>& to) {
    const graph::Node& node = program.node_of(program.segment(Segment::kUpdate)[i]);
    if (node.op != &graph::Reshard::def) return;
    const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
    if (attrs.axis != graph::Axis::kPipeline || !attrs.among.empty()) return;
    std::string& text = to.emplace_back();
    for (const graph::ValueId id : node.inputs) {
      const graph::Value& value = program.graph.value(id);
      text += fmt::format("{}[{}] ", name_of(value.dtype), value.shape.elements());
    }
  };
  std::set<int32_t> started;
  for (const Early& one : program.early) {
    add(static_cast<size_t>(one.instruction), early);
    started.insert(one.instruction);
  }
  for (size_t i = 0; i < program.segment(Segment::kUpdate).size(); ++i)
    if (!started.contains(static_cast<int32_t>(i))) add(i, rest);
  early.insert(early.end(), rest.begin(), rest.end());
  return early;
}

// Also where one stage waits for its data before it adds up a count, and another has none to wait for.
TEST(StagesOfAPipeline, StartTheirCollectivesInOneOrder) {
  for (const char* preset : {"llama3-5m", "gpt2-124m", "moe-30m-a10m", "gdn-30m", "t5-small"}) {
    for (const Cut& schedule : kSchedules) {
      for (const graph::Mesh& mesh :
           {graph::Mesh::of(1, 1, 1, 1, schedule.ranks), graph::Mesh::of(1, 2, 1, 2, schedule.ranks)}) {
        SCOPED_TRACE(fmt::format("{} {} on {} ranks", preset, schedule.schedule, mesh.ranks()));
        CompileOptions options = tiny_options(preset_of(preset));
        options.model = deep_model(preset);
        options.mesh = mesh;
        options.zero = mesh.size(graph::Axis::kShard) > 1 ? 1 : 0;
        options.recompute = Recompute::kFull;
        std::vector<std::string> first;
        for (int32_t place = 0; place < schedule.ranks; ++place) {
          const CompileOptions mine = at_place(options, pipeline_for(schedule, options.model), place);
          const auto set = compile({request_of(mine, schedule.micro_batches)}, mine);
          const std::vector<std::string> found = collectives_of_update(set->programs[0]);
          EXPECT_FALSE(found.empty());
          if (place == 0) first = found;
          EXPECT_EQ(found, first) << "place " << place;
        }
      }
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<InAPipeline::ParamType>& one) {
  const Cut& cut = std::get<1>(one.param);
  return test_name(fmt::format("{}_{}_{}", std::get<0>(one.param), cut.schedule, one.index));
}

INSTANTIATE_TEST_SUITE_P(Schedules, InAPipeline,
                         testing::Combine(testing::Values("llama3-5m", "t5-small"),
                                          testing::ValuesIn(kSchedules), testing::Values(false)),
                         name_of_case);
// Every schedule on two to four ranks, with each number of micro-batches that it allows.
std::vector<Cut> sizes() {
  std::vector<Cut> cuts;
  for (const parallel::ScheduleKind& kind : parallel::schedule_kinds()) {
    for (const int32_t ranks : {2, 3, 4}) {
      for (const int32_t micro_batches : {1, 2, 3, 5, 8}) {
        const int32_t stages = kind.chunks == 0 ? 2 : 1;
        try {
          parallel::make_schedule({std::string(kind.name), ranks, micro_batches, stages});
        } catch (const ConfigError&) {
          continue;
        }
        cuts.push_back({kind.name.data(), ranks, stages, micro_batches, graph::Mesh::of(1, 1, 1, 1, ranks)});
      }
    }
  }
  return cuts;
}
INSTANTIATE_TEST_SUITE_P(Sizes, InAPipeline,
                         testing::Combine(testing::Values("llama3-5m"), testing::ValuesIn(sizes()),
                                          testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Mixed, InAPipeline,
                         testing::Combine(testing::Values("gpt2-124m", "t5-v1.1-small"),
                                          testing::ValuesIn(kMixed), testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Uneven, InAPipeline,
                         testing::Combine(testing::Values("gemma3-270m", "t5-small", "bert-tiny"),
                                          testing::ValuesIn(kUneven), testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Hybrids, InAPipeline,
    testing::Combine(testing::Values("gdn-30m", "mamba2-30m", "nemotron-3-nano-30b-a3b", "dsa-30m", "glm-5"),
                     testing::Values(Cut{"1f1b"}, kMixed[1], kMixed[5], kMixed[6], kUneven[0]),
                     testing::Values(false)),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(EncoderWithExperts, InAPipeline,
                         testing::Combine(testing::Values("switch-base-8"),
                                          testing::Values(kUneven[1], kUneven[4]), testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Families, InAPipeline,
                         testing::Combine(testing::Values("qwen3-0.6b", "gemma2-2b", "pythia-14m",
                                                          "phi3-mini", "starcoder2-3b", "stablelm2-1.6b",
                                                          "deepseek3-6m", "moe-30m-a10m", "gpt-oss-20b",
                                                          "llama4-scout", "bert-tiny", "olmo2-1b"),
                                          testing::Values(Cut{"zbv"}), testing::Values(false)),
                         name_of_case);
// Prediction modules follow the last stage's layers and share a table with the first stage.
const Cut kPredictingCuts[] = {{"gpipe"},
                               {"1f1b"},
                               {"interleaved", 2, 2},
                               {"zb_h1"},
                               {"zbv"},
                               {"1f1b", 2, 1, 4, graph::Mesh::of(1, 2, 1, 1, 2), 3},
                               {"zbv", 2, 1, 4, graph::Mesh::of(1, 1, 2, 2, 2)},
                               {"1f1b", 2, 1, 4, graph::Mesh::of(1, 1, 1, 1, 2), 0, "Et*3|t*5mmL"},
                               {"1f1b", 4, 1, 4, graph::Mesh::of(1, 1, 1, 1, 4), 0, "E|t*7|t|mmL"}};
INSTANTIATE_TEST_SUITE_P(Prediction, InAPipeline,
                         testing::Combine(testing::Values("glm-4.5-air+predicting"),
                                          testing::ValuesIn(kPredictingCuts), testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(LatentPrediction, InAPipeline,
                         testing::Combine(testing::Values("deepseek3-6m+predicting"),
                                          testing::Values(Cut{"zbv"}), testing::Values(false)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Bf16, InAPipeline,
                         testing::Combine(testing::Values("llama3-5m", "bert-tiny"),
                                          testing::Values(Cut{"1f1b"}, Cut{"zbv"}), testing::Values(true)),
                         name_of_case);

}  // namespace
}  // namespace strata::program
