// Inference of placements, resharding, and reduction of a graph to a rank's shards.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/differentiate.h"
#include "graph/localize.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"

namespace strata::graph {
namespace {

const Placement kR = Placement::replicated(), kP = Placement::partial(), kS0 = Placement::sharded(0),
                kS1 = Placement::sharded(1);

Placements on_shard_and_tensor(Placement shard, Placement tensor) {
  return {{Axis::kShard, shard}, {Axis::kTensor, tensor}};
}

Graph on_2x2() {
  return Graph(Mesh::of(1, 2, 1, 2));
}

ValueId add(Graph& graph, const char* name, Shape shape, const Placements& placements,
            Role role = Role::kActivation, std::vector<int64_t> segments = {}) {
  return graph.add_value({.name = name,
                          .shape = shape,
                          .role = role,
                          .placements = placements,
                          .segments = std::move(segments)});
}

TEST(Placements, AreInferredOnEachAxisSeparately) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kS0, kR));
  const ValueId column =
      graph.add_parameter("column", ParameterRole::kFfnIn, {4, 6}, {}, {{Axis::kTensor, kS0}});
  const ValueId row = graph.add_parameter("row", ParameterRole::kFfnOut, {6, 4}, {}, {{Axis::kTensor, kS1}});
  const ValueId hidden = ops::linear(graph, x, column);
  EXPECT_EQ(graph.value(hidden).placements, on_shard_and_tensor(kS0, kS1));
  const ValueId terms = ops::linear(graph, hidden, row);
  EXPECT_EQ(graph.value(terms).placements, on_shard_and_tensor(kS0, kP));
  const ValueId y = reshard(graph, terms, Axis::kTensor, kS0);
  EXPECT_EQ(graph.value(y).placements, on_shard_and_tensor(kS0, kS0));
  EXPECT_EQ(reshard(graph, y, Axis::kTensor, kS0), y);
  EXPECT_EQ(reshard(graph, y, Axis::kContext, kS1), y) << "an axis of one rank moves nothing";
}

TEST(Placements, WithoutAMatchingOptionAreAnError) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kR, kS1));
  const ValueId weight = graph.add_parameter("w", ParameterRole::kFfnIn, {4, 6}, {}, {{Axis::kTensor, kS0}});
  try {
    ops::linear(graph, x, weight);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    for (const char* part : {"axis tensor", "linear", "@S1", "@S0"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Placements, OfAccumulatorsAreThoseOfTheirFirstWriters) {
  Graph graph = on_2x2();
  const ValueId dy = add(graph, "dy", {8, 6}, on_shard_and_tensor(kS0, kS1));
  const ValueId whole = add(graph, "whole", {8, 6}, on_shard_and_tensor(kR, kS1));
  const ValueId sums = add(graph, "sums", {6}, {}, Role::kGradient);
  graph::add_into<ops::ColumnSums>(graph, {.dy = dy}, {.sums = sums});
  EXPECT_EQ(graph.value(sums).placements, on_shard_and_tensor(kP, kS0));
  EXPECT_THROW(graph::add_into<ops::ColumnSums>(graph, {.dy = whole}, {.sums = sums}), InternalError);
}

// The gradient of a value has its placement; that of a partial sum is whole.
TEST(Reshard, HasItsConjugateAsGradient) {
  for (const Placement from : {kR, kP, kS0, kS1}) {
    for (const Placement to : {kR, kS0, kS1}) {
      for (const Placement arrives : {to, to == kR ? kP : to}) {
        SCOPED_TRACE(str(from) + " to " + str(to) + ", gradient " + str(arrives));
        Graph graph = on_2x2();
        const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kS0, from));
        const ValueId y = from == to && to == kR ? enter_shards(graph, x, Axis::kTensor)
                                                 : reshard(graph, x, Axis::kTensor, to);
        const ValueId dy = add(graph, "dy", {8, 6}, on_shard_and_tensor(kS0, arrives));
        const GivenGradient given{y, dy};
        const auto gradients = differentiate(graph, {}, std::span(&given, 1));
        const ValueId dx = gradients[static_cast<size_t>(x)];
        ASSERT_NE(dx, kNone);
        EXPECT_EQ(graph.value(dx).placements, on_shard_and_tensor(kS0, from == kP ? kR : from));
      }
    }
  }
}

TEST(Reshard, CreatesNoPartialSums) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kR, kR));
  EXPECT_THROW(reshard(graph, x, Axis::kTensor, kP), InternalError);
}

// A value that is already whole is unchanged.
TEST(Reshard, AddsUpSeveralValuesInOneNodePerAxis) {
  Graph graph = on_2x2();
  const ValueId a = add(graph, "a", {8, 6}, on_shard_and_tensor(kP, kR)),
                b = add(graph, "b", {8, 6}, on_shard_and_tensor(kR, kR)),
                c = add(graph, "c", {3}, on_shard_and_tensor(kP, kR)),
                d = add(graph, "d", {2}, on_shard_and_tensor(kR, kP));
  const auto sums = sum_over_ranks(graph, std::vector{a, b, c, d});
  EXPECT_EQ(sums[1], b);
  ASSERT_EQ(graph.nodes().size(), 2U);
  EXPECT_EQ(graph.nodes()[0].inputs, (std::vector{a, c}));
  EXPECT_EQ(graph.nodes()[1].outputs, (std::vector{sums[3]}));
  EXPECT_EQ(graph.value(sums[0]).shape, (Shape{8, 6}));
  for (const ValueId sum : sums) EXPECT_EQ(graph.value(sum).placements, on_shard_and_tensor(kR, kR));
  localize(graph);
  EXPECT_EQ(graph.nodes()[0].attrs.as<ReshardAttrs>().cuts.size(), 2U);
}

// Padding belongs to a sharded dimension: sharding along another dimension removes it.
TEST(Reshard, AlongAnotherDimensionRemovesPadding) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {4, 5}, on_shard_and_tensor(kS1, kR));
  graph.value(x).sharding.padding = {.axis = Axis::kShard, .alignment = 1};
  const ValueId y = reshard(graph, x, Axis::kShard, kS0);
  EXPECT_EQ(graph.value(y).sharding.padding, Padding{});
  localize(graph);
  EXPECT_EQ(graph.value(x).shape, (Shape{4, 3}));
  EXPECT_EQ(graph.value(y).shape, (Shape{2, 5}));
}

TEST(Reshard, WithoutEffectIsRemovedAfterDifferentiation) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kS0, kR));
  const ValueId entered = enter_shards(graph, x, Axis::kTensor);
  const ValueId y = ops::scale(graph, entered, 2);
  ASSERT_EQ(graph.nodes().size(), 2U);
  drop_identities_pass(graph);
  ASSERT_EQ(graph.nodes().size(), 1U);
  EXPECT_EQ(graph::inputs_of<ops::Scale>(graph.nodes()[0]).x, x);
  EXPECT_EQ(graph::outputs_of<ops::Scale>(graph.nodes()[0]).y, y);
}

// Each rank has each of its elements at one position, and ranks that differ on a sharded axis have different
// elements.
TEST(Shards, CoverTheWholeOnce) {
  const Mesh mesh = Mesh::of(1, 2, 1, 2);
  for (const Placements& placements : {on_shard_and_tensor(kS0, kS1), on_shard_and_tensor(kS0, kS0),
                                       on_shard_and_tensor(kS1, kS1), on_shard_and_tensor(kS1, kS0)}) {
    for (const std::vector<int64_t>& segments :
         {std::vector<int64_t>{}, std::vector<int64_t>{4, 8}, std::vector<int64_t>{4, 4, 4}}) {
      Graph graph(mesh);
      const ValueId id = graph.add_parameter("w", ParameterRole::kFfnIn, {12, 8}, {}, placements, segments);
      std::multiset<std::pair<int64_t, int64_t>> seen;
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        const auto spans = held_spans(graph.value(id), mesh, mesh.coordinates(rank));
        for (const HeldSpan& rows : spans[0]) {
          for (int64_t r = rows.whole.begin; r < rows.whole.end; ++r) {
            for (const HeldSpan& columns : spans[1]) {
              for (int64_t c = columns.whole.begin; c < columns.whole.end; ++c) seen.emplace(r, c);
            }
          }
        }
      }
      EXPECT_EQ(seen.size(), 96U);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 96U);
    }
  }
}

TEST(Shards, OfTheFirstAxisAreShardedByTheNext) {
  const Mesh mesh = Mesh::of(1, 2, 1, 2);
  Graph graph(mesh);
  const ValueId id = add(graph, "x", {8}, on_shard_and_tensor(kS0, kS0), Role::kInput);
  EXPECT_EQ(held_spans(graph.value(id), mesh, {{0, 0, 1, 0, 0}})[0], (std::vector<HeldSpan>{{{4, 6}, 0}}));
  EXPECT_EQ(held_spans(graph.value(id), mesh, {{0, 0, 0, 0, 1}})[0], (std::vector<HeldSpan>{{{2, 4}, 0}}));
}

TEST(Localize, ReturnsTheShardOfEachRank) {
  Graph graph = on_2x2();
  const ValueId x = add(graph, "x", {8, 6}, on_shard_and_tensor(kS0, kR), Role::kInput);
  const ValueId weight =
      graph.add_parameter("qkv", ParameterRole::kAttentionIn, {12, 6}, {}, {{Axis::kTensor, kS0}}, {8, 2, 2});
  const ValueId y = ops::linear(graph, x, weight);
  localize(graph);
  EXPECT_EQ(graph.value(weight).shape, (Shape{6, 6}));
  EXPECT_EQ(graph.value(weight).segments, (std::vector<int64_t>{4, 1, 1}));
  EXPECT_EQ(graph.value(weight).sharding.global_shape, (Shape{12, 6}));
  EXPECT_EQ(graph.value(y).shape, (Shape{4, 6}));
  EXPECT_EQ(graph.value(y).segments, (std::vector<int64_t>{4, 1, 1}));
}

TEST(Localize, NamesDimensionsThatTheMeshDoesNotDivide) {
  Graph graph = on_2x2();
  graph.add_parameter("layers.3.qkv", ParameterRole::kAttentionIn, {12, 6}, {}, {{Axis::kTensor, kS0}},
                      {6, 3, 3});
  try {
    localize(graph);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part : {"parallel.tensor", "layers.3.qkv", "3", "2 ranks"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Mesh, CountsRanksWithTheLastAxisFirst) {
  const Mesh mesh = Mesh::of(2, 3, 1, 4);
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.batch_ranks(), 6);
  EXPECT_EQ(mesh.coordinates(0), (Coordinates{{0, 0, 0, 0, 0}}));
  EXPECT_EQ(mesh.coordinates(5), (Coordinates{{0, 0, 1, 0, 1}}));
  EXPECT_EQ(mesh.coordinates(23), (Coordinates{{0, 1, 2, 0, 3}}));
}

}  // namespace
}  // namespace strata::graph
