#include "program/exchange.h"

#include <algorithm>

namespace strata::program {

using graph::Placement;
using hardware::Exchange;

NodeExchange exchange_of(const graph::Graph& graph, const graph::Node& node, DType payload) {
  const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
  NodeExchange exchange{.axis = attrs.axis, .ranks = attrs.ranks, .is_among_some = !attrs.among.empty()};
  const int64_t n = attrs.ranks;
  const bool scatters = attrs.to.kind == Placement::Kind::kSharded;
  for (const graph::ValueId input : node.inputs) {
    const graph::Value& x = graph.value(input);
    if (attrs.from.kind == Placement::Kind::kPartial) {
      const bool is_gradient = x.role == graph::Role::kGradient || x.role == graph::Role::kTerms;
      const int64_t whole = x.shape.elements() * (is_gradient ? size_of(payload) : size_of(x.dtype));
      exchange.kind = scatters ? Exchange::kReduceScatter : Exchange::kAllReduce;
      exchange.bytes += whole;
      exchange.sent_bytes += (scatters ? 1 : 2) * whole * (n - 1) / n;
    } else if (attrs.shift != 0) {
      exchange.kind = Exchange::kSend;
      exchange.distance = attrs.shift;
      exchange.bytes += x.bytes();
      exchange.sent_bytes += x.bytes();
    } else if (scatters) {
      exchange.kind = Exchange::kAllToAll;
      exchange.bytes += x.bytes();
      exchange.sent_bytes += x.bytes() * (n - 1) / n;
    } else {
      exchange.kind = Exchange::kGather;
      exchange.bytes += x.bytes() * n;
      exchange.sent_bytes += x.bytes() * (n - 1);
    }
  }
  return exchange;
}

hardware::Group group_along(const graph::Mesh& mesh, graph::Axis axis) {
  hardware::Group group{.ranks = mesh.size(axis)};
  if (group.ranks == 1) return group;
  graph::Coordinates second = mesh.coordinates(0);
  second[axis] = 1;
  group.stride = mesh.rank_at(second);
  return group;
}

hardware::Group group_over(const graph::Mesh& mesh, const std::vector<graph::Axis>& axes) {
  hardware::Group all;
  for (const graph::Axis axis : axes) {
    const hardware::Group one = group_along(mesh, axis);
    if (one.ranks == 1) continue;
    all.stride = all.ranks == 1 ? one.stride : std::min(all.stride, one.stride);
    all.ranks *= one.ranks;
  }
  return all;
}

}  // namespace strata::program
