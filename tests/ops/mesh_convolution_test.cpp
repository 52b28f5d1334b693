// Causal convolution where ranks of the context axis share the rows of each sequence.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/differentiate.h"
#include "graph/localize.h"
#include "graph/reshard.h"
#include "ops/causal_convolution/causal_convolution.h"

namespace strata::ops {
namespace {

using graph::Axis;
using graph::kNone;

const graph::Placement kSharedRows = graph::Placement::sharded(0), kColumns = graph::Placement::sharded(1);
constexpr int64_t kSequences = 2, kLength = 24, kChannels = 8, kTaps = 4;

struct Built {
  Graph graph;
  ValueId x, y, dx;
};

Built build(const graph::Mesh& mesh, graph::Placement on_context, int64_t pieces) {
  Built made{Graph(mesh), kNone, kNone, kNone};
  Graph& graph = made.graph;
  const graph::Placements rows{{Axis::kContext, on_context}};
  const int64_t n = kSequences * kLength;
  made.x = graph.add_value({.name = "x", .shape = {n, kChannels}, .placements = rows});
  const graph::Placements of_weight{
      {Axis::kContext, on_context == kColumns ? kSharedRows : graph::Placement::replicated()}};
  const ValueId weight =
      graph.add_parameter("weight", graph::ParameterRole::kFfnIn, {kChannels, kTaps}, {}, of_weight);
  const ValueId positions =
      graph.add_value({.name = "positions",
                       .dtype = DType::kI32,
                       .shape = {n},
                       .role = graph::Role::kInput,
                       .placements = {{Axis::kContext, on_context == kColumns ? graph::Placement::replicated()
                                                                              : on_context}}});
  made.y = causal_convolution(graph, made.x, {.weight = weight}, positions, {kLength, pieces, true});
  const ValueId dy = graph.add_value({.name = "dy", .shape = {n, kChannels}, .placements = rows});
  const graph::GivenGradient given{made.y, dy};
  made.dx = graph::differentiate(graph, {}, std::span(&given, 1))[static_cast<size_t>(made.x)];
  return made;
}

std::vector<std::string_view> names_of(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const graph::Node& node : graph.nodes()) names.push_back(node.op->name);
  return names;
}

TEST(MeshConvolution, PassesTheLastRowsOfPiecesToTheNext) {
  constexpr int64_t kRanks = 2, kPieces = 2 * kRanks;
  Built made = build(graph::Mesh::of(1, 1, kRanks, 1), kSharedRows, kPieces);
  EXPECT_EQ(names_of(made.graph),
            (std::vector<std::string_view>{"convolution_tails", "reshard", "shift_pieces", "take_shard",
                                           "causal_convolution", "causal_convolution_grad_input",
                                           "causal_convolution_grad_weight", "reshard", "shift_pieces",
                                           "take_shard", "convolution_tails_grad", "add"}));
  graph::localize(made.graph);
  EXPECT_EQ(made.graph.value(made.y).shape, (Shape{kSequences * kLength / kRanks, kChannels}));
  EXPECT_EQ(made.graph.value(made.dx).shape, made.graph.value(made.x).shape);
  for (const graph::Node& node : made.graph.nodes()) {
    if (node.op == &CausalConvolution::def || node.op == &CausalConvolutionGradInput::def ||
        node.op == &CausalConvolutionGradWeight::def) {
      const auto& attrs = node.attrs.as<CausalConvolutionAttrs>();
      EXPECT_EQ(attrs.sequence_length, kLength / kRanks);
      EXPECT_EQ(attrs.pieces, 2);
    }
    if (node.op == &ShiftPieces::def) {
      EXPECT_EQ(node.attrs.as<ShiftPiecesAttrs>().pieces, kPieces);
    }
    if (node.op == &ConvolutionTails::def) {
      EXPECT_EQ(made.graph.value(node.outputs[0]).shape, (Shape{kSequences * 2 * (kTaps - 1), kChannels}));
    }
  }
}

TEST(MeshConvolution, NeedsNoPiecesForWholeSequences) {
  for (const Built& made :
       {build(graph::Mesh::of(1, 1, 1, 1), kSharedRows, 1), build(graph::Mesh::of(1, 1, 2, 1), kColumns, 1)})
    EXPECT_EQ(names_of(made.graph),
              (std::vector<std::string_view>{"causal_convolution", "causal_convolution_grad_input",
                                             "causal_convolution_grad_weight"}));
}

// Rows of a sequence on several ranks are several pieces, none shorter than the rows that the next one reads.
TEST(MeshConvolution, RefusesPiecesThatCannotBe) {
  EXPECT_THROW(build(graph::Mesh::of(1, 1, 2, 1), kSharedRows, 1), InternalError);
  EXPECT_THROW(build(graph::Mesh::of(1, 1, 6, 1), kSharedRows, 12), ConfigError);
  EXPECT_THROW(build(graph::Mesh::of(1, 1, 2, 1), kSharedRows, 5), ConfigError);
}

}  // namespace
}  // namespace strata::ops
