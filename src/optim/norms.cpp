#include "optim/norms.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/reshard.h"
#include "optim/scalars/scalars.h"

namespace strata::optim {

using graph::Axis;
using graph::Graph;
using graph::Placement;
using graph::ValueId;

namespace {

ValueId sum_of(Graph& graph, const std::vector<ValueId>& partials) {
  return graph::add<SumOfPartials>(graph, {.partials = {partials.begin(), partials.end()}}).sum;
}

}  // namespace

ValueId sum_over_stages(Graph& graph, ValueId own) {
  graph::set_partial(graph, own, Axis::kPipeline);
  return graph::reshard(graph, own, Axis::kPipeline, Placement::replicated());
}

std::vector<ValueId> squares_of(Graph& graph, const std::vector<ValueId>& values, std::string nothing) {
  std::vector<ValueId> partials;
  std::map<std::vector<bool>, std::vector<ValueId>> in_shards;  // by the axes on which they are terms
  for (const ValueId value : values) {
    const ValueId squares = graph::add<SumOfSquares>(graph, {.x = value}).partials;
    std::vector<bool> axes;
    for (const Axis axis : graph::kAllAxes)
      axes.push_back(graph.placement(squares, axis) == Placement::partial());
    if (std::find(axes.begin(), axes.end(), true) == axes.end()) {
      partials.push_back(squares);
    } else {
      in_shards[axes].push_back(squares);
    }
  }
  for (const auto& [axes, terms] : in_shards)
    partials.push_back(graph::sum_over_ranks(graph, sum_of(graph, terms)));
  if (graph.mesh().size(Axis::kPipeline) == 1) return partials;
  // Each stage has only the norms of its parameters.
  if (!partials.empty()) return {sum_over_stages(graph, sum_of(graph, partials))};
  graph::Value zero;  // never written
  zero.name = std::move(nothing);
  zero.dtype = DType::kF64;
  zero.shape = {1};
  zero.role = graph::Role::kMetric;
  return {sum_over_stages(graph, graph.add_value(std::move(zero)))};
}

}  // namespace strata::optim
