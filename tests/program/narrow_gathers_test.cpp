// ZeRO gathers weights as matmuls read them: half of the bytes, and no other bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "fixtures/test_name.h"
#include "graph/zero.h"
#include "mesh_model.h"
#include "program/exchange.h"

namespace strata::program {
namespace {

struct Layout {
  const char* name;  // unique
  graph::Mesh mesh;
  int zero;
  bool reshard_after_forward = true;
  Backward backward = Backward::kCombined;
  int64_t expert_ranks = 1;
  int64_t prefetch = 0;
};

const std::vector<Layout>& layouts() {
  using graph::Mesh;
  static const std::vector<Layout> kAll{
      {"zero1", Mesh::of(1, 2, 1, 1), 1},
      {"zero2", Mesh::of(1, 2, 1, 1), 2},
      {"zero3", Mesh::of(1, 2, 1, 1), 3},
      {"zero3_kept", Mesh::of(1, 4, 1, 1), 3, false},
      {"zero3_early", Mesh::of(1, 2, 1, 1), 3, true, Backward::kCombined, 1, 1},
      {"zero2_tensor2", Mesh::of(1, 2, 1, 2), 2},
      {"zero3_tensor2_split", Mesh::of(1, 2, 1, 2), 3, true, Backward::kSplit},
      {"zero1_replicate2", Mesh::of(2, 2, 1, 1), 1},
      {"zero3_context2", Mesh::of(1, 2, 2, 1), 3},
      {"zero3_experts2", Mesh::of(2, 2, 1, 1), 3, true, Backward::kCombined, 2}};
  return kAll;
}

CompileOptions options_for(const std::string& preset, const Layout& layout) {
  CompileOptions options = tiny_options(preset);
  options.model = small_model(preset);
  options.rule_of = steady_rule;
  options.activations = DType::kBF16;
  options.mesh = layout.mesh;
  options.zero = layout.zero;
  options.reshard_after_forward = layout.reshard_after_forward;
  options.prefetch = layout.prefetch;
  options.backward = layout.backward;
  if (layout.expert_ranks > 1 && options.model.experts.count > 0) {
    options.model.experts.count = 8;
    options.experts = {layout.expert_ranks};
  }
  return options;
}

// Two updates: the second one reads weights of the first one.
MeshRanks trained(const CompileOptions& options) {
  return MeshRanks(compile({request_for(options.model, options.mesh.batch_ranks())}, options), 3,
                   [](Executor& executor, const graph::Coordinates& at) {
                     fill_batch(executor, at, true);
                     write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
                     for (int i = 0; i < 2; ++i) executor.run_script(0);
                   });
}

// Bytes that a rank sends to gather weights.
double gathered_bytes(const ProgramSet& set) {
  const graph::Graph& graph = set.programs[0].graph;
  double bytes = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (graph::is_gather(graph, node))
      bytes += static_cast<double>(exchange_of(graph, node, DType::kF32).sent_bytes);
  }
  return bytes;
}

class NarrowGathers : public testing::TestWithParam<std::tuple<const char*, Layout>> {};

TEST_P(NarrowGathers, HalveTheBytesAndChangeNoBit) {
  const auto& [preset, layout] = GetParam();
  CompileOptions options = options_for(preset, layout);
  options.gathers_narrow = false;
  const MeshRanks wide = trained(options);
  options.gathers_narrow = true;
  const MeshRanks narrow = trained(options);
  const graph::Graph& graph = wide.set().programs[0].graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const graph::ValueId id : {parameter.value, parameter.gradient}) {
      if (id == graph::kNone) continue;
      const std::string& name = graph.value(id).name;
      EXPECT_EQ(narrow.whole(name).values, wide.whole(name).values) << name;
    }
  }
  for (const char* name : {"loss_sum", "grad_norm"})
    EXPECT_EQ(narrow.whole(name).values, wide.whole(name).values) << name;
  const double all = gathered_bytes(wide.set());
  EXPECT_GT(all, 0);
  // Norms, routers, experts on processors and recurrences' own parameters stay in fp32.
  EXPECT_LE(gathered_bytes(narrow.set()), (options.model.experts.count > 0 ? 0.9 : 0.7) * all);
}

std::string name_of_case(const testing::TestParamInfo<NarrowGathers::ParamType>& one) {
  return test_name(std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name);
}
INSTANTIATE_TEST_SUITE_P(Families, NarrowGathers,
                         testing::Combine(testing::Values("llama3-5m", "gpt2-124m", "gemma3-270m",
                                                          "mixtral-8x7b", "deepseek3-6m", "t5-small",
                                                          "gdn-30m", "mamba2-30m", "dsa-30m"),
                                          testing::ValuesIn(layouts())),
                         name_of_case);

}  // namespace
}  // namespace strata::program
