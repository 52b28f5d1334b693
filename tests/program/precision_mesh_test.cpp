// Recipes of fp8 and fp4 on ranks: a layout changes neither the scales of a tensor nor what a step computes.
#include <gtest/gtest.h>

#include <map>

#include "precision_model.h"

namespace strata::program {
namespace {

struct PrecisionLayout {
  const char* name;
  graph::Mesh mesh = graph::Mesh::of_one();
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  Backward backward = Backward::kCombined;
  bool sequence_parallel = true;
  layers::ContextKind context = layers::ContextKind::kAllGather;
};

std::ostream& operator<<(std::ostream& out, const PrecisionLayout& layout) {
  return out << layout.name;
}

const std::vector<PrecisionLayout>& precision_layouts() {
  using graph::Mesh;
  static const std::vector<PrecisionLayout> kAll{
      {"replicate2", Mesh::of(2, 1, 1, 1)},
      {"zero1_shard2", Mesh::of(1, 2, 1, 1), 1},
      {"zero3_shard2", Mesh::of(1, 2, 1, 1), 3},
      {"zero3_shard2_recomputed", Mesh::of(1, 2, 1, 1), 3, Recompute::kFull},
      {"tensor2", Mesh::of(1, 1, 1, 2)},
      {"tensor2_whole_rows", Mesh::of(1, 1, 1, 2), 0, Recompute::kNone, Backward::kCombined, false},
      {"context2", Mesh::of(1, 1, 2, 1)},
      {"ring2", Mesh::of(1, 1, 2, 1), 0, Recompute::kNone, Backward::kCombined, true,
       layers::ContextKind::kRing},
      {"ulysses2", Mesh::of(1, 1, 2, 1), 0, Recompute::kNone, Backward::kCombined, true,
       layers::ContextKind::kUlysses},
      {"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), 3},
      {"context2_tensor2", Mesh::of(1, 1, 2, 2)},
      {"recomputed", Mesh::of_one(), 0, Recompute::kFull},
      {"split", Mesh::of_one(), 0, Recompute::kSelective, Backward::kSplit}};
  return kAll;
}

CompileOptions precision_options(const std::string& recipe) {
  CompileOptions options = options_of_recipe("llama3-5m", recipe);
  options.model.intermediate_size = 256;
  return options;
}

const MeshRanks& step_of_one(const std::string& recipe) {
  static std::map<std::string, MeshRanks> known;
  const auto found = known.find(recipe);
  return found != known.end() ? found->second
                              : known.emplace(recipe, step_of(precision_options(recipe))).first->second;
}

class RecipesOnAMesh : public testing::TestWithParam<std::tuple<const char*, PrecisionLayout>> {};

TEST_P(RecipesOnAMesh, TrainAsOnOneRank) {
  const auto& [recipe, layout] = GetParam();
  const MeshRanks& one = step_of_one(recipe);
  CompileOptions options = precision_options(recipe);
  options.mesh = layout.mesh;
  options.zero = layout.zero;
  options.recompute = layout.recompute;
  options.backward = layout.backward;
  options.sequence_parallel = layout.sequence_parallel;
  options.context_kind = layout.context;
  const MeshRanks ranks = step_of(options);
  // What sums in another order do: some values are rounded to the next code.
  const double apart = greatest_distance(ranks, one);
  EXPECT_LT(apart, 0.03);
  const int64_t tensor = layout.mesh.size(graph::Axis::kTensor),
                context = layout.mesh.size(graph::Axis::kContext);
  if (tensor == 1 && context == 1) {
    EXPECT_LT(apart, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, RecipesOnAMesh,
    testing::Combine(testing::Values("block", "tensor", "row", "row_hp_wgrad", "mxfp8", "nvfp4"),
                     testing::ValuesIn(precision_layouts())),
    [](const auto& one) { return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name; });

}  // namespace
}  // namespace strata::program
