// Recipes of fp8 and fp4 on ranks: a layout changes neither the scales of a tensor nor what a step computes.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "graph/zero.h"
#include "precision_model.h"
#include "program/exchange.h"

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

std::string name_of_recipe(const testing::TestParamInfo<RecipesOnAMesh::ParamType>& one) {
  return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name;
}

// Between them they have every cut, gather and order of backward.
std::vector<PrecisionLayout> some_layouts() {
  std::vector<PrecisionLayout> some;
  for (const PrecisionLayout& layout : precision_layouts()) {
    for (const std::string_view name : {"zero1_shard2", "zero3_shard2_tensor2", "context2", "recomputed"})
      if (layout.name == name) some.push_back(layout);
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Block, RecipesOnAMesh,
                         testing::Combine(testing::Values("block"), testing::ValuesIn(precision_layouts())),
                         name_of_recipe);
INSTANTIATE_TEST_SUITE_P(Recipes, RecipesOnAMesh,
                         testing::Combine(testing::Values("tensor", "delayed", "row", "row_hp_wgrad", "mxfp8",
                                                          "nvfp4"),
                                          testing::ValuesIn(some_layouts())),
                         name_of_recipe);

// Backward keeps inputs of matmuls as codes: a byte an element, and fp32 for 128 of them.
TEST(Recipe, KeepsInputsAsCodes) {
  const auto set = compile({{.kind = Kind::kTrain, .sequences = 2, .sequence_length = kTokensOfSequence}},
                           precision_options("block"));
  const graph::Graph& graph = set->programs[0].graph;
  int64_t elements = 0, bytes = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op != &ops::ScaledLinearGradWeight::def) continue;
    const auto in = graph::inputs_of<ops::ScaledLinearGradWeight>(node);
    for (const graph::ValueId id : {in.x, in.x_scales}) {
      const graph::Value& value = graph.value(id);
      const graph::Node& maker = graph.nodes()[static_cast<size_t>(value.producer)];
      EXPECT_EQ(maker.phase, graph::Phase::kForward);
      bytes += value.bytes();
    }
    elements += graph.value(in.x).shape.elements();
    // Backward reads the tensor itself only where something other than a matmul needs it.
    const graph::Node& maker = graph.nodes()[static_cast<size_t>(graph.value(in.x).producer)];
    EXPECT_EQ(maker.op, &ops::Quantize::def);
  }
  EXPECT_GT(elements, 0);
  EXPECT_EQ(bytes, elements + elements / 32);
}

// Bytes of the shards that ZeRO-3 puts together, of fp32's.
TEST(Recipe, GathersAQuarterOfTheBytes) {
  const auto gathered = [](CompileOptions options) {
    options.mesh = graph::Mesh::of(1, 2, 1, 1);
    options.zero = 3;
    const auto set =
        compile({{.kind = Kind::kTrain, .sequences = 1, .sequence_length = kTokensOfSequence}}, options);
    const graph::Graph& graph = set->programs[0].graph;
    double bytes = 0;
    for (const graph::Node& node : graph.nodes()) {
      if (node.layer == graph::kNone || !graph::is_gather(graph, node)) continue;
      bytes += static_cast<double>(exchange_of(graph, node, DType::kF32).sent_bytes);
    }
    return bytes;
  };
  CompileOptions plain = precision_options("block");
  plain.precision = nullptr;
  CompileOptions bf16 = plain;
  bf16.activations = DType::kBF16;
  bf16.gathers_narrow = true;
  const double all = gathered(plain);
  EXPECT_LE(gathered(bf16), 0.51 * all) << "norms stay fp32";
  EXPECT_LE(gathered(precision_options("block")), 0.26 * all);
  EXPECT_LE(gathered(precision_options("row")), 0.27 * all);
  EXPECT_LE(gathered(precision_options("delayed")), 0.26 * all);
}

// A cut inside a block is refused by the key, the tensor and the sizes.
TEST(Recipe, RefusesACutInsideBlocks) {
  CompileOptions options = precision_options("block");
  options.model.intermediate_size = 192;
  options.mesh = graph::Mesh::of(1, 1, 1, 2);
  try {
    step_of(options);
    FAIL() << "took shards of 96";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    for (const char* part : {"[recipe]", "block", "128", "96", "layers.0.ffn", "tensor"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
  options.precision = precision_options("row").precision;
  EXPECT_NO_THROW(step_of(options));
}

}  // namespace
}  // namespace strata::program
