// Small helpers that the rules of several ops share.
#pragma once

#include "graph/differentiate.h"
#include "graph/reshard.h"
#include "graph/typed_op.h"

namespace strata::ops {

using graph::add;
using graph::add_into;
using graph::again;
using graph::Axis;
using graph::Cost;
using graph::define;
using graph::GradientBuilder;
using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::NodeView;
using graph::OpDef;
using graph::Placement;
using graph::Spec;
using graph::Value;
using graph::ValueId;
using graph::View;

// Results of a shape rule and of a placement rule.
template <typename Op>
using Outputs = typename Op::template Out<graph::Specs>;
template <typename Op>
using Splits = std::vector<graph::Split<Op>>;
// All operands placed alike, to begin with.
template <typename Op>
graph::Split<Op> split_alike(Placement placement) {
  graph::Split<Op> split{};
  const auto place = [&](auto& member, auto, std::string_view, size_t, size_t) { member = placement; };
  graph::visit(split.in, 0, place);
  graph::visit(split.out, 0, place);
  return split;
}

template <typename Op>
void require(const View<Op>& node, bool condition, const char* what) {
  if (!condition) graph::shape_error(node.untyped(), what);
}
inline void require(const NodeView& view, bool condition, const char* what) {
  if (!condition) graph::shape_error(view, what);
}

inline constexpr Placement kR = Placement::replicated();
inline constexpr Placement kP = Placement::partial();
inline constexpr Placement kS0 = Placement::sharded(0);
inline constexpr Placement kS1 = Placement::sharded(1);

// Work of an op that streams its operands and does `per_element` operations for each element of its first
// input, which must exist unless that is 0.
inline Cost streamed(const NodeView& view, double per_element) {
  const double elements = per_element > 0 ? static_cast<double>(view.in(0).shape.elements()) : 0;
  return {per_element * elements, graph::streamed_bytes(view)};
}
template <typename Op>
Cost streamed(const View<Op>& node, double per_element) {
  return streamed(node.untyped(), per_element);
}

// Checks the per-rank constants, a member `rank`.
template <typename Op>
void require_rank_block(const View<Op>& node) {
  graph::require_rank_block(node.untyped(), *node.in.rank);
}

// Rules::localize of ops that only need the number of ranks of their axis.
template <typename Op>
typename Op::Attrs localize_ranks(const View<Op>& node) {
  typename Op::Attrs attrs = node.attrs;
  attrs.ranks = node.graph.mesh().size(attrs.axis);
  return attrs;
}

}  // namespace strata::ops
