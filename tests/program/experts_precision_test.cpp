// Recipes on experts: layouts, passes and the type in which rows travel change neither scales nor what a step computes.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/scaled_experts/scaled_experts.h"
#include "precision_model.h"

namespace strata::program {
namespace {

struct ExpertsLayout {
  const char* name;
  graph::Mesh mesh = graph::Mesh::of_one();
  layers::ExpertLayout experts = {};
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  Backward backward = Backward::kCombined;
};

std::ostream& operator<<(std::ostream& out, const ExpertsLayout& layout) {
  return out << layout.name;
}

const std::vector<ExpertsLayout>& experts_layouts() {
  using graph::Mesh;
  static const std::vector<ExpertsLayout> kAll{
      {"shard2", Mesh::of(1, 2, 1, 1), {2}},
      {"shard2_in_passes", Mesh::of(1, 2, 1, 1), {2, 1, 0.5}},
      {"shard2_in_passes_split",
       Mesh::of(1, 2, 1, 1),
       {2, 1, 0.5},
       0,
       Recompute::kSelective,
       Backward::kSplit},
      {"shard2_recomputed", Mesh::of(1, 2, 1, 1), {2}, 0, Recompute::kFull},
      {"zero3_shard2_tensor2", Mesh::of(1, 2, 1, 2), {2}, 3},
      {"tensor2_expert_tensor2", Mesh::of(1, 1, 1, 2), {1, 2}},
      {"shard2_expert_tensor2_in_passes", Mesh::of(1, 2, 1, 2), {2, 2, 0.5}},
      {"shard4_by_nodes", Mesh::of(1, 4, 1, 1), {4, 1, {}, 2}}};
  return kAll;
}

constexpr int64_t kExperts = 4, kSequences = 4, kTokens = 128;

CompileOptions experts_options(const std::string& recipe, bool in_codes = false) {
  CompileOptions options = options_of_recipe("moe-30m-a10m", recipe);
  options.model.layers = 1;
  options.model.experts.count = kExperts;
  options.model.experts.route.k = 2;
  options.model.experts.intermediate_size = 256;
  Precision precision = *options.precision;
  precision.dispatches_codes = in_codes;
  options.precision = std::make_shared<const Precision>(std::move(precision));
  return options;
}

CompileOptions on_layout(CompileOptions options, const ExpertsLayout& layout) {
  options.mesh = layout.mesh;
  options.experts = layout.experts;
  options.zero = layout.zero;
  options.recompute = layout.recompute;
  options.backward = layout.backward;
  return options;
}

const MeshRanks& step_of_one(const std::string& recipe) {
  static std::map<std::string, MeshRanks> known;
  const auto found = known.find(recipe);
  return found != known.end()
             ? found->second
             : known.emplace(recipe, step_of(experts_options(recipe), kSequences, kTokens)).first->second;
}

class ExpertsInCodes : public testing::TestWithParam<std::tuple<const char*, ExpertsLayout>> {};

TEST_P(ExpertsInCodes, TrainAsOnOneRank) {
  const auto& [recipe, layout] = GetParam();
  const MeshRanks ranks = step_of(on_layout(experts_options(recipe, true), layout), kSequences, kTokens);
  const auto is_of_experts = [](const std::string& name) { return name.find("experts.") != name.npos; };
  const double of_experts = greatest_distance(ranks, step_of_one(recipe), is_of_experts),
               others = greatest_distance(ranks, step_of_one(recipe),
                                          [&](const std::string&name) { return !is_of_experts(name); });
  RecordProperty("of_experts", std::to_string(of_experts));
  RecordProperty("others", std::to_string(others));
  // Sums in another order, and weight gradients of other groups of pairs: values are rounded to the next code.
  EXPECT_LT(others, 0.03);
  // Ranks of experts form other groups than one rank; in 4 bits these round by 10 % and more.
  EXPECT_LT(of_experts, std::string_view(recipe) == "nvfp4" && layout.experts.ranks > 1 ? 0.2 : 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, ExpertsInCodes,
    testing::Combine(testing::Values("block", "tensor", "delayed", "row", "row_hp_wgrad", "mxfp8", "nvfp4"),
                     testing::ValuesIn(experts_layouts())),
    [](const auto& one) { return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name; });

// Each row has separate scales: it makes no difference whether rows are rounded before they are sent.
TEST(DispatchInCodes, ChangesNoBit) {
  for (const char* recipe : {"block", "mxfp8"}) {
    for (const ExpertsLayout& layout : experts_layouts()) {
      const std::string_view name = layout.name;
      if (!name.ends_with("in_passes") && !name.ends_with("nodes")) continue;
      SCOPED_TRACE(std::string(recipe) + " " + layout.name);
      const MeshRanks codes = step_of(on_layout(experts_options(recipe, true), layout), kSequences, kTokens),
                      rows = step_of(on_layout(experts_options(recipe), layout), kSequences, kTokens);
      EXPECT_EQ(greatest_distance(codes, rows), 0);
    }
  }
}

// Bytes of rows that a rank sends in a step: to experts, and back.
struct SentRows {
  double there = 0, back = 0;
};
SentRows rows_sent(const CompileOptions& options) {
  const auto set =
      compile({{.kind = Kind::kTrain, .sequences = kSequences / 2, .sequence_length = kTokens}}, options);
  const graph::Graph& graph = set->programs[0].graph;
  SentRows sent;
  for (const graph::Node& node : graph.nodes()) {
    if (node.loop != graph::kNone) continue;
    if (node.op == &ops::DispatchRows::def) sent.there += node.op->ranks({graph, node}).sent_bytes;
    if (node.op == &ops::CombineRows::def) sent.back += node.op->ranks({graph, node}).sent_bytes;
  }
  return sent;
}

TEST(DispatchInCodes, SendsOneByteAnElementAndScales) {
  for (const bool in_passes : {false, true}) {
    const ExpertsLayout layout = experts_layouts()[in_passes ? 1 : 0];
    const auto sent = [&](const std::string& recipe, bool in_codes) {
      CompileOptions options = on_layout(experts_options(recipe, in_codes), layout);
      options.activations = DType::kBF16;
      return rows_sent(options);
    };
    const SentRows rows = sent("block", false);
    ASSERT_GT(rows.there, 0);
    EXPECT_EQ(rows.there, rows.back);
    // A row of 256 in bf16 is 512 bytes; there are two ways there, and two back.
    const std::map<std::string, double> records{
        {"block", 256 + 2 * 4}, {"mxfp8", 256 + 8},    {"tensor", 256 + 4},     {"row", 256 + 4},
        {"delayed", 256 + 4},   {"row_hp_wgrad", 512}, {"nvfp4", 512 + 8.0 / 2}};  // a row's place, once
    for (const auto& [recipe, bytes] : records) {
      const SentRows codes = sent(recipe, recipe != "row_hp_wgrad");
      EXPECT_DOUBLE_EQ(codes.there / rows.there, bytes / 512) << recipe;
      EXPECT_EQ(codes.back, rows.back) << recipe;
    }
    EXPECT_DOUBLE_EQ(sent("row_hp_wgrad", true).there, rows.there) << "weight gradients read the rows";
  }
}

// Scales of whole blocks of 128 outputs cannot be cut between experts.
TEST(ExpertsUnderRecipes, NameTheExpertsThatBlocksCross) {
  CompileOptions options = experts_options("block");
  options.model.hidden_size = 192;  // outputs of the second matmul
  options.model.experts.count = 2;
  EXPECT_NO_THROW(rows_sent(options));
  options = on_layout(options, experts_layouts()[0]);
  try {
    rows_sent(options);
    FAIL() << "192 outputs were cut into blocks of 128";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("192"), text.npos) << text;
    EXPECT_NE(text.find("down.weight"), text.npos) << text;
    EXPECT_NE(text.find(options.words.expert), text.npos) << text;
  }
}

// The parts of nvfp4 can be left out of experts too.
TEST(ExpertsUnderRecipes, HaveThePartsOfNvfp4) {
  for (const bool transforms : {false, true}) {
    for (const bool stochastic : {false, true}) {
      CompileOptions options = on_layout(experts_options("nvfp4"), experts_layouts()[0]);
      Precision precision = *options.precision;
      precision.recipe.transforms_weight_gradient = transforms;
      precision.recipe.rounds_gradients_stochastically = stochastic;
      options.precision = std::make_shared<const Precision>(std::move(precision));
      const auto set =
          compile({{.kind = Kind::kTrain, .sequences = kSequences / 2, .sequence_length = kTokens}}, options);
      std::map<std::string_view, int> nodes;
      for (const graph::Node& node : set->programs[0].graph.nodes()) {
        ++nodes[node.op->name];
        if (node.op != &ops::ScaledExpertsInGradWeight::def &&
            node.op != &ops::ScaledExpertsOutGradWeight::def)
          continue;
        const ops::QuantizeAttrs& pairs = node.attrs.as<ops::ScaledExpertsAttrs>().pair_rounding;
        EXPECT_EQ(pairs.transforms_columns, transforms);
        EXPECT_EQ(pairs.stochastic, stochastic);
      }
      EXPECT_GT(nodes["scaled_experts_in_grad_weight"], 0);
      EXPECT_EQ(nodes["pair_places"] > 0, stochastic);
      EXPECT_EQ(nodes["experts_in"], 0);
    }
  }
}

// Weights that are kept stay in the type of activations, and the rows that they multiply.
TEST(ExpertsUnderRecipes, KeepWeights) {
  CompileOptions options = on_layout(experts_options("block", true), experts_layouts()[0]);
  Precision precision = *options.precision;
  precision.keeps = [](const std::string& name, const graph::Parameter&) {
    return name.ends_with("experts.up.weight");
  };
  options.precision = std::make_shared<const Precision>(std::move(precision));
  const auto set =
      compile({{.kind = Kind::kTrain, .sequences = kSequences / 2, .sequence_length = kTokens}}, options);
  std::map<std::string_view, int> nodes;
  for (const graph::Node& node : set->programs[0].graph.nodes()) ++nodes[node.op->name];
  EXPECT_GT(nodes["experts_in"], 0);
  EXPECT_GT(nodes["scaled_experts_out"], 0);
  EXPECT_EQ(nodes["experts_out"], 0);
  EXPECT_EQ(nodes["scaled_experts_in"], 0);
}

}  // namespace
}  // namespace strata::program
