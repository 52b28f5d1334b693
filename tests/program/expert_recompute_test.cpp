// Forward does not save values that the backward of distributed experts recomputes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "mesh_model.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/linear/linear.h"
#include "program/expert_passes.h"

namespace strata::program {
namespace {

struct Found {
  int64_t kept = 0;  // bytes that forward saves for backward, per layer
  int64_t slots = 0, arena = 0;
};

Found compiled(Recompute recompute, Backward backward, const char* preset, int64_t layers) {
  CompileOptions options = tiny_options(preset);
  options.model = small_model(preset);
  options.model.experts.count = 8;
  options.model.layers = layers;
  options.mesh = graph::Mesh::of(1, 2, 1, 1);
  options.experts = {2};
  options.recompute = recompute;
  options.backward = backward;
  // Enough tokens for activations to exceed weights.
  Request request = request_for(options.model, 2);
  request.sequences = 100;
  const auto set = compile({request}, options);
  const graph::Graph& graph = set->programs[0].graph;
  Found found{.arena = set->arena_bytes};
  const std::vector<bool> of_passes = values_of_passes(graph);
  std::set<graph::ValueId> made, kept;
  for (const graph::Node& node : graph.nodes()) {
    if (node.layer != 1 || node.loop != graph::kNone) continue;
    if (node.op == &ops::PlanDispatch::def) found.slots = node.attrs.as<ops::DispatchAttrs>().slots();
    const bool is_forward = node.phase == graph::Phase::kForward;
    for (const graph::ValueId value : is_forward ? node.outputs : node.inputs) {
      if (value == graph::kNone || !of_passes[static_cast<size_t>(value)]) continue;
      if (is_forward) made.insert(value);
      if (!is_forward && made.contains(value)) kept.insert(value);
    }
  }
  for (const graph::ValueId value : kept) found.kept += graph.value(value).bytes();
  return found;
}

class ExpertRecompute : public testing::TestWithParam<const char*> {};

TEST_P(ExpertRecompute, SavesOnlyWhatIsNotRecomputed) {
  const auto of = [&](Recompute recompute, int64_t layers, Backward backward = Backward::kCombined) {
    return compiled(recompute, backward, GetParam(), layers);
  };
  // The activation's output, and the same scaled by the routing weights: each expert is 16 wide.
  int64_t of_slots = 0;
  for (const Backward backward : {Backward::kCombined, Backward::kSplit}) {
    const Found none = of(Recompute::kNone, 4, backward), selective = of(Recompute::kSelective, 4, backward);
    of_slots = none.slots * 16 * 4;
    ASSERT_GT(of_slots, 0);
    EXPECT_EQ(none.kept - selective.kept, 2 * of_slots);
  }
  // The plan grows by that much less per layer.
  const auto growth = [&](Recompute recompute) { return of(recompute, 6).arena - of(recompute, 4).arena; };
  EXPECT_GE(growth(Recompute::kNone) - growth(Recompute::kSelective), 2 * 2 * of_slots);
  EXPECT_LT(growth(Recompute::kFull), growth(Recompute::kSelective));
}

// Matmuls of a shared expert that start while rows of the same layer are in flight.
int64_t matmuls_alongside(const Program& program, Segment segment, const graph::OpDef& of_rows) {
  const std::vector<Instruction>& list = program.segment({segment});
  int64_t count = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const graph::Node& started = program.node_of(list[i]);
    if (started.op != &of_rows || started.loop != graph::kNone) continue;
    for (size_t j = i + 1; j < list.size(); ++j) {
      const auto waits = program.waits_of(list[j]);
      if (std::find(waits.begin(), waits.end(), static_cast<int32_t>(i)) != waits.end()) break;
      const graph::OpDef* op = program.node_of(list[j]).op;
      count += op == &ops::Linear::def || op == &ops::LinearGradInput::def;
    }
  }
  return count;
}

TEST(SharedExperts, ComputeWhileRowsAreInFlight) {
  constexpr const char* kPreset = "qwen1.5-moe-a2.7b";
  CompileOptions options = tiny_options(kPreset);
  options.model = small_model(kPreset);
  options.mesh = graph::Mesh::of(1, 2, 1, 1);
  options.experts = {2};
  const auto set = compile({request_for(options.model, 2)}, options);
  const Program& program = set->programs[0];
  EXPECT_GE(matmuls_alongside(program, Segment::kForward, ops::CombineRows::def), 2);
  EXPECT_GE(matmuls_alongside(program, Segment::kBackward, ops::DispatchRows::def), 2);
  // One loop per layer, forward and backward.
  std::map<std::pair<int32_t, bool>, std::set<int32_t>> loops;
  for (const graph::Node& node : program.graph.nodes()) {
    if (node.loop != graph::kNone)
      loops[{node.layer, node.phase == graph::Phase::kForward}].insert(node.loop);
  }
  EXPECT_EQ(std::ssize(loops), 2 * options.model.layers);
  for (const auto& [where, of_layer] : loops) EXPECT_EQ(of_layer.size(), 1U) << where.first;
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertRecompute, testing::Values("moe-30m-a10m", "gpt-oss-20b"),
                         [](const auto& model) { return std::string(model.param).substr(0, 3); });

}  // namespace
}  // namespace strata::program
