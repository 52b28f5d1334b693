// A small model compiled for each rank of a mesh produces the losses, gradients and updates of one rank.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "fixtures/test_name.h"
#include "graph/reshard.h"
#include "mesh_model.h"

namespace strata::program {
namespace {

struct Layout {
  const char* name;
  graph::Mesh mesh;
  bool sequence_parallel = true;
  int zero = 0;
  layers::ContextKind context = layers::ContextKind::kAllGather;
  layers::ExpertLayout experts = {};
};

const std::vector<Layout>& layouts() {
  using graph::Mesh;
  constexpr auto kUlysses = layers::ContextKind::kUlysses, kRing = layers::ContextKind::kRing;
  static const std::vector<Layout> kAll{{"tensor2", Mesh::of(1, 1, 1, 2)},
                                        {"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), false},
                                        {"tensor4", Mesh::of(1, 1, 1, 4)},
                                        {"shard2", Mesh::of(1, 2, 1, 1)},
                                        {"replicate2", Mesh::of(2, 1, 1, 1)},
                                        {"shard2_tensor2", Mesh::of(1, 2, 1, 2)},
                                        {"shard2_tensor2_whole_rows", Mesh::of(1, 2, 1, 2), false},
                                        {"replicate2_shard2", Mesh::of(2, 2, 1, 1)},
                                        {"zero1_shard2", Mesh::of(1, 2, 1, 1), true, 1},
                                        {"zero2_shard2", Mesh::of(1, 2, 1, 1), true, 2},
                                        {"zero3_shard2", Mesh::of(1, 2, 1, 1), true, 3},
                                        {"zero1_shard3", Mesh::of(1, 3, 1, 1), true, 1},
                                        {"zero3_shard4", Mesh::of(1, 4, 1, 1), true, 3},
                                        {"zero2_replicate2_shard2", Mesh::of(2, 2, 1, 1), true, 2},
                                        {"zero3_replicate2_shard2", Mesh::of(2, 2, 1, 1), true, 3},
                                        {"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), true, 3},
                                        {"context2", Mesh::of(1, 1, 2, 1)},
                                        {"context3", Mesh::of(1, 1, 3, 1)},
                                        {"context4", Mesh::of(1, 1, 4, 1)},
                                        {"context2_tensor2", Mesh::of(1, 1, 2, 2)},
                                        {"zero3_shard2_context2", Mesh::of(1, 2, 2, 1), true, 3},
                                        {"zero2_replicate2_context2", Mesh::of(2, 1, 2, 1), true, 2},
                                        {"ring2", Mesh::of(1, 1, 2, 1), true, 0, kRing},
                                        {"ring3", Mesh::of(1, 1, 3, 1), true, 0, kRing},
                                        {"ring2_tensor2", Mesh::of(1, 1, 2, 2), true, 0, kRing},
                                        {"zero3_shard2_ring2", Mesh::of(1, 2, 2, 1), true, 3, kRing},
                                        {"ulysses2", Mesh::of(1, 1, 2, 1), true, 0, kUlysses},
                                        {"ulysses4", Mesh::of(1, 1, 4, 1), true, 0, kUlysses},
                                        {"ulysses2_tensor2", Mesh::of(1, 1, 2, 2), true, 0, kUlysses},
                                        {"zero1_shard2_ulysses2", Mesh::of(1, 2, 2, 1), true, 1, kUlysses}};
  return kAll;
}

// Layouts with expert parallelism. Half of the balanced capacity causes several passes in every layer.
const std::vector<Layout>& expert_layouts() {
  using graph::Mesh;
  constexpr auto kAllGather = layers::ContextKind::kAllGather;
  const auto layout = [](const char* name, Mesh mesh, layers::ExpertLayout experts, int zero = 0,
                         bool sequence_parallel = true) {
    return Layout{name, std::move(mesh), sequence_parallel, zero, kAllGather, experts};
  };
  static const std::vector<Layout> kAll{
      layout("shard2", Mesh::of(1, 2, 1, 1), {2}),
      layout("shard2_in_passes", Mesh::of(1, 2, 1, 1), {2, 1, 0.5}),
      layout("tensor2", Mesh::of(1, 1, 1, 2), {2}),
      layout("tensor2_whole_rows", Mesh::of(1, 1, 1, 2), {2}, 0, false),
      layout("context2", Mesh::of(1, 1, 2, 1), {2}),
      layout("zero1_shard2", Mesh::of(1, 2, 1, 1), {2}, 1),
      layout("zero2_shard4", Mesh::of(1, 4, 1, 1), {4}, 2),
      layout("zero3_shard2", Mesh::of(1, 2, 1, 1), {2}, 3),
      layout("zero2_replicate2_shard2_in_passes", Mesh::of(2, 2, 1, 1), {2, 1, 0.5}, 2),
      layout("shard2_tensor2", Mesh::of(1, 2, 1, 2), {4}),
      layout("shard2_tensor2_whole_rows", Mesh::of(1, 2, 1, 2), {4}, 0, false),
      layout("zero1_shard2_over_tensor2", Mesh::of(1, 2, 1, 2), {2}, 1),
      layout("zero3_shard2_over_tensor2_in_passes", Mesh::of(1, 2, 1, 2), {2, 1, 0.3}, 3),
      layout("context2_tensor2", Mesh::of(1, 1, 2, 2), {4}),
      layout("shard2_expert_tensor2", Mesh::of(1, 2, 1, 2), {2, 2}),
      layout("shard2_expert_tensor2_whole_rows", Mesh::of(1, 2, 1, 2), {2, 2}, 0, false),
      layout("tensor2_expert_tensor2", Mesh::of(1, 1, 1, 2), {1, 2}),
      layout("shard2_context2_tensor2", Mesh::of(1, 2, 2, 2), {8}, 1),
      layout("nodes_of_2_in_shard4", Mesh::of(1, 4, 1, 1), {4, 1, {}, 2}, 1),
      layout("nodes_of_2_in_shard4_in_passes", Mesh::of(1, 4, 1, 1), {4, 1, 0.5, 2}),
      layout("nodes_of_4_in_shard2_context2_tensor2", Mesh::of(1, 2, 2, 2), {8, 1, {}, 4}),
      layout("nodes_of_2_in_shard2_tensor2_in_passes", Mesh::of(1, 2, 1, 2), {4, 1, 0.7, 2}, 3)};
  return kAll;
}

// Compile options besides the mesh.
struct Making {
  const char* name;  // unique
  Recompute recompute = Recompute::kNone;
  Backward backward = Backward::kCombined;
  DType activations = DType::kF32;
  double tolerance = 2e-5;
  layers::MoeSpec::Balance balance = layers::MoeSpec::Balance::kSequence;
  layers::MoeSpec::Router router = layers::MoeSpec::Router::kTopK;
  double capacity_factor = 0;
  layers::Settings::Indexer indexer = layers::Settings::Indexer::kSparse;
};

std::vector<Layout> named(const std::vector<Layout>& all, std::initializer_list<std::string_view> names) {
  std::vector<Layout> found;
  for (const Layout& layout : all)
    if (std::find(names.begin(), names.end(), layout.name) != names.end()) found.push_back(layout);
  return found;
}

// Whether ranks that share heads by all-to-all would have to share one group of a state space.
bool refuses_groups(const CompileOptions& options) {
  const int64_t ranks = options.mesh.size(graph::Axis::kContext);
  const bool by_heads = ranks > 1 && options.context_kind == layers::ContextKind::kUlysses;
  const auto& dims = options.model.state_space;
  return dims && by_heads && dims->groups % (ranks * options.mesh.size(graph::Axis::kTensor)) != 0;
}

class OnAMesh : public testing::TestWithParam<std::tuple<const char*, Layout, Making>> {
 protected:
  static CompileOptions options_for(const std::string& preset, const Making& making) {
    CompileOptions options = tiny_options(preset_of(preset));
    options.model = small_model(preset);
    options.rule_of = steady_rule;
    options.recompute = making.recompute;
    options.backward = making.backward;
    options.activations = making.activations;
    options.indexer = making.indexer;
    models::Experts& experts = options.model.experts;
    experts.balance = making.balance;
    experts.router = making.router;
    experts.capacity.factor = making.capacity_factor;
    if (making.router == models::Experts::Router::kSoft) experts.slots = 2;
    if (making.router == models::Experts::Router::kTwoLevel) {
      experts.route.groups = 3;
      experts.route.kept_groups = 2;
      experts.route.group_score = ops::RouteAttrs::GroupScore::kSum;
    }
    return options;
  }
  static MeshRanks take_step(const CompileOptions& options) {
    // Global balancing uses counts of all ranks but each rank's probabilities: this equals one rank only if
    // all ranks have the same number of targets.
    const bool masks = options.model.experts.balance != layers::MoeSpec::Balance::kGlobal;
    return MeshRanks(compile({request_for(options.model, options.mesh.batch_ranks())}, options), 3,
                     [&options, masks](Executor& executor, const graph::Coordinates& at) {
                       fill_batch(executor, at, masks);
                       write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
                       executor.run_script(0);
                       // Biases of experts start at zero.
                       if (options.model.experts.biases) executor.run_script(0);
                     });
  }
  // The step of one rank, computed once for all layouts.
  static const MeshRanks& baseline(const std::string& preset, const Making& making,
                                   const CompileOptions& options) {
    static std::map<std::string, MeshRanks> known;
    const std::string key = fmt::format("{} {} {}", preset, making.name, options.model.experts.count);
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, take_step(options)).first->second;
  }
};

TEST_P(OnAMesh, ComputesWhatOneRankComputes) {
  const auto& [preset, layout, making] = GetParam();
  CompileOptions options = options_for(preset, making);
  if (layout.experts.ranks > 1) options.model.experts.count = 8;
  const MeshRanks& one = baseline(preset, making, options);
  ASSERT_EQ(one.collectives(), 0U);

  options.mesh = layout.mesh;
  options.sequence_parallel = layout.sequence_parallel;
  options.zero = layout.zero;
  options.context_kind = layout.context;
  options.experts = layout.experts;
  const bool ring = layout.context == layers::ContextKind::kRing,
             shared = layout.mesh.size(graph::Axis::kContext) > 1;
  const models::Experts& experts = options.model.experts;
  const bool group = experts.router == models::Experts::Router::kExpertChoice ||
                     experts.router == models::Experts::Router::kSoft;
  const bool parts = layout.mesh.size(graph::Axis::kTensor) > 1 || shared;
  const bool scatters_keys = shared && layout.context != layers::ContextKind::kAllGather;
  if ((ring && options.model.positions == models::Positions::kRelative) || (group && parts) ||
      refuses_groups(options) || (options.model.indexer && scatters_keys)) {
    EXPECT_THROW(take_step(options), ConfigError);
    return;
  }
  const MeshRanks ranks = take_step(options);
  EXPECT_GT(ranks.collectives(), 0U);

  const graph::Graph& graph = one.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const graph::ValueId id : {parameter.gradient, parameter.value}) {
      if (id == graph::kNone) continue;
      const std::string& name = graph.value(id).name;
      expect_near(ranks.whole(name), one.whole(name), making.tolerance, name);
      if (HasFatalFailure()) return;
    }
  }
  std::vector<const char*> names{"loss_sum", "token_count", "grad_norm", "param_norm"};
  const bool warms_up = making.indexer == layers::Settings::Indexer::kDense;
  if (experts.count > 0 && !warms_up) names.push_back("layers.1.ffn.expert_tokens");
  for (const char* loss : {"balance_loss_sum", "router_z_loss_sum", "indexer_loss_sum"})
    if (graph.find_value(loss) != graph::kNone) names.push_back(loss);
  if (graph.find_value("layers.1.ffn.router_squares") != graph::kNone)
    names.push_back("layers.1.ffn.router_squares");
  if (options.model.predict_layers > 0)
    names.insert(names.end(), {"predict.1.loss_sum", "predict.2.loss_sum", "predict.2.token_count"});
  for (const char* name : names) expect_near(ranks.whole(name), one.whole(name), making.tolerance, name);
}

constexpr Making kPlain{"plain"}, kFull{"recomputed", Recompute::kFull},
    kSplit{"split", Recompute::kSelective, Backward::kSplit};
// Sums of bf16 terms are rounded once per rank.
constexpr Making kBf16{"bf16", Recompute::kNone, Backward::kCombined, DType::kBF16, 6e-2};
constexpr Making kGlobal{
    "global", Recompute::kFull, Backward::kSplit, DType::kF32, 2e-5, layers::MoeSpec::Balance::kGlobal};

std::string name_of_case(const testing::TestParamInfo<OnAMesh::ParamType>& one) {
  return test_name(std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name + "_" +
                   std::get<2>(one.param).name);
}

INSTANTIATE_TEST_SUITE_P(Families, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "gpt2-124m", "qwen3-0.6b", "gemma2-2b",
                                                          "gemma3-270m", "pythia-14m", "phi3-mini",
                                                          "starcoder2-3b", "stablelm2-1.6b", "olmo2-1b",
                                                          "olmo3-7b", "deepseek2-6m", "deepseek3-6m",
                                                          "bert-tiny", "t5-small", "t5-v1.1-small"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain)),
                         name_of_case);
std::vector<Layout> latent_layouts() {
  std::vector<Layout> all = named(
      layouts(), {"context2", "context4", "context2_tensor2", "ring2", "ulysses2", "zero3_shard2_context2"});
  all.push_back({"context2_tensor2_whole_rows", graph::Mesh::of(1, 1, 2, 2), false});
  return all;
}
// Latents without rotation, of every second layer here.
INSTANTIATE_TEST_SUITE_P(LatentsOfHybrids, OnAMesh,
                         testing::Combine(testing::Values("kda-30m"), testing::ValuesIn(latent_layouts()),
                                          testing::Values(kFull)),
                         name_of_case);
// What a rank gets of others' keys and values: 12 numbers a token of the latent and 4 that heads share, not
// the 8 · (10 + 8) of all heads.
TEST(LatentsOnAMesh, OnlyLatentsAreGathered) {
  CompileOptions options = tiny_options("deepseek3-6m");
  options.model = small_model("deepseek3-6m");
  options.mesh = graph::Mesh::of(1, 1, 2, 1);
  const auto set = compile({request_for(options.model, 1)}, options);
  std::map<int64_t, int> widths;
  const graph::Graph& graph = set->programs[0].graph;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op != &graph::Reshard::def) continue;
    const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
    if (attrs.axis != graph::Axis::kContext || attrs.from != graph::Placement::sharded(0)) continue;
    for (const graph::ValueId moved : node.outputs) ++widths[graph.value(moved).shape[1]];
  }
  EXPECT_EQ(widths, (std::map<int64_t, int>{{12, 2}, {4, 2}})) << "of two layers";
}
INSTANTIATE_TEST_SUITE_P(Experts, OnAMesh,
                         testing::Combine(testing::Values("moe-30m-a10m", "qwen1.5-moe-a2.7b", "glm-4.5-air",
                                                          "deepseek-v2-lite"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(SharedExperts, OnAMesh,
                         testing::Combine(testing::Values("moe-30m-a10m", "deepseek-v2-lite"),
                                          testing::ValuesIn(expert_layouts()),
                                          testing::Values(kPlain, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(
    SharedExpertsWithBiases, OnAMesh,
    testing::Combine(testing::Values("gpt-oss-20b"),
                     testing::ValuesIn(named(expert_layouts(),
                                             {"shard2", "shard2_in_passes", "tensor2_whole_rows",
                                              "shard2_expert_tensor2", "shard2_expert_tensor2_whole_rows",
                                              "zero3_shard2_over_tensor2_in_passes",
                                              "nodes_of_2_in_shard4_in_passes"})),
                     testing::Values(kPlain)),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(SharedExpertsRecomputed, OnAMesh,
                         testing::Combine(testing::Values("moe-30m-a10m"),
                                          testing::ValuesIn(expert_layouts()), testing::Values(kFull)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Prediction, OnAMesh,
                         testing::Combine(testing::Values("glm-4.5-air+predicting"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(LatentPrediction, OnAMesh,
                         testing::Combine(testing::Values("deepseek3-6m+predicting"),
                                          testing::ValuesIn(named(layouts(),
                                                                  {"tensor2", "tensor2_whole_rows",
                                                                   "zero3_shard2_tensor2", "context2"})),
                                          testing::Values(kPlain, kFull)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(ExpertsInOtherWays, OnAMesh,
                         testing::Combine(testing::Values("gpt-oss-20b", "llama4-maverick"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Balance, OnAMesh,
                         testing::Combine(testing::Values("moe-30m-a10m"), testing::ValuesIn(layouts()),
                                          testing::Values(kGlobal)),
                         name_of_case);
using Router = layers::MoeSpec::Router;
constexpr Making of_router(const char* name, Router router, double capacity_factor = 0) {
  return {name,
          Recompute::kSelective,
          Backward::kCombined,
          DType::kF32,
          2e-5,
          layers::MoeSpec::Balance::kSequence,
          router,
          capacity_factor};
}
INSTANTIATE_TEST_SUITE_P(
    Routers, OnAMesh,
    testing::Combine(
        testing::Values("moe-30m-a10m"),
        testing::ValuesIn(named(layouts(), {"tensor2", "tensor2_whole_rows", "shard2", "context2",
                                            "zero3_shard2_tensor2", "zero3_replicate2_shard2"})),
        testing::Values(of_router("hash", Router::kHash), of_router("two_level", Router::kTwoLevel),
                        of_router("expert_choice", Router::kExpertChoice), of_router("soft", Router::kSoft),
                        of_router("capacity", Router::kTopK, 0.6))),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    SharedExpertsOfGroups, OnAMesh,
    testing::Combine(testing::Values("moe-30m-a10m"),
                     testing::ValuesIn(named(expert_layouts(), {"shard2", "shard2_in_passes", "zero3_shard2",
                                                                "nodes_of_2_in_shard4_in_passes"})),
                     testing::Values(of_router("expert_choice", Router::kExpertChoice),
                                     of_router("soft", Router::kSoft))),
    name_of_case);
// Noise on the routers' input depends on a token's position in its sample, capacity on its position in the
// batch.
INSTANTIATE_TEST_SUITE_P(Switch, OnAMesh,
                         testing::Combine(testing::Values("switch-base-8"),
                                          testing::ValuesIn(named(layouts(),
                                                                  {"tensor2", "tensor2_whole_rows", "shard2",
                                                                   "context2", "zero3_replicate2_shard2"})),
                                          testing::Values(kPlain, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(SharedSwitch, OnAMesh,
                         testing::Combine(testing::Values("switch-base-8"),
                                          testing::ValuesIn(named(expert_layouts(),
                                                                  {"shard2", "shard2_in_passes",
                                                                   "tensor2_whole_rows", "zero2_shard4"})),
                                          testing::Values(kPlain)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Hybrids, OnAMesh,
                         testing::Combine(testing::Values("gdn-30m", "qwen3-next-80b-a3b", "olmo-hybrid-7b",
                                                          "kda-30m", "mamba2-30m", "nemotron-3-nano-30b-a3b",
                                                          "granite-4.0-h-tiny", "falcon-h1-0.5b",
                                                          "lfm2-8b-a1b"),
                                          testing::ValuesIn(layouts()), testing::Values(kPlain)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(HybridsInOtherWays, OnAMesh,
                         testing::Combine(testing::Values("gdn-30m", "mamba2-30m"),
                                          testing::ValuesIn(layouts()), testing::Values(kFull, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(SharedExpertsOfHybrids, OnAMesh,
                         testing::Combine(testing::Values("qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"),
                                          testing::ValuesIn(named(expert_layouts(),
                                                                  {"shard2", "tensor2", "context2",
                                                                   "zero3_shard2", "shard2_tensor2"})),
                                          testing::Values(kPlain)),
                         name_of_case);
constexpr Making of_indexer(const char* name, layers::Settings::Indexer indexer, Recompute recompute,
                            Backward backward) {
  return {name,
          recompute,
          backward,
          DType::kF32,
          2e-5,
          layers::MoeSpec::Balance::kSequence,
          layers::MoeSpec::Router::kTopK,
          0,
          indexer};
}
using Indexer = layers::Settings::Indexer;
constexpr Making kWarmup = of_indexer("warmup", Indexer::kDense, Recompute::kNone, Backward::kCombined);
INSTANTIATE_TEST_SUITE_P(Indexers, OnAMesh,
                         testing::Combine(testing::Values("dsa-30m", "glm-5"), testing::ValuesIn(layouts()),
                                          testing::Values(kPlain, kWarmup)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(
    IndexersInOtherWays, OnAMesh,
    testing::Combine(testing::Values("dsa-30m"),
                     testing::ValuesIn(named(layouts(), {"tensor2", "context2", "zero3_shard2_context2",
                                                         "context2_tensor2", "zero3_shard2_tensor2"})),
                     testing::Values(kFull, kSplit,
                                     of_indexer("warmup_split", Indexer::kDense, Recompute::kFull,
                                                Backward::kSplit))),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(SharedExpertsOfIndexers, OnAMesh,
                         testing::Combine(testing::Values("glm-5"),
                                          testing::ValuesIn(named(expert_layouts(),
                                                                  {"shard2", "tensor2", "context2",
                                                                   "zero3_shard2"})),
                                          testing::Values(kPlain, kWarmup)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(PredictionOfIndexers, OnAMesh,
                         testing::Combine(testing::Values("dsa-30m+predicting"),
                                          testing::ValuesIn(named(layouts(), {"tensor2", "context2",
                                                                              "zero3_shard2_tensor2"})),
                                          testing::Values(kPlain, kWarmup)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Makings, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "bert-tiny", "t5-small"),
                                          testing::ValuesIn(layouts()), testing::Values(kFull, kSplit)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Bf16, OnAMesh,
                         testing::Combine(testing::Values("llama3-5m", "bert-tiny"),
                                          testing::ValuesIn(layouts()), testing::Values(kBf16)),
                         name_of_case);

}  // namespace
}  // namespace strata::program
