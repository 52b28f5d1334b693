// Small helpers that the rules of several ops share.
#pragma once

#include "graph/differentiate.h"
#include "graph/typed_op.h"
#include "ops/operands.h"

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
using graph::PlacementOption;
using graph::Value;
using graph::ValueId;
using graph::ValueSpec;
using graph::Spec;
using graph::View;

// What a shape rule gives, and a placement rule.
template <typename Op>
using Outputs = typename Op::template Out<graph::Specs>;
template <typename Op>
using Splits = std::vector<graph::Split<Op>>;

template <typename Op>
void require(const View<Op>& node, bool condition, const char* what) {
  if (!condition) graph::shape_error(node.untyped(), what);
}
inline void require(const NodeView& view, bool condition, const char* what) {
  if (!condition) graph::shape_error(view, what);
}

// qkv = [q | k | v] of whole heads: what attention and rope read. value_dim: of a head of v; 0: head_dim.
void require_segments(const NodeView& view, const Value& qkv, int64_t head_dim, int64_t value_dim = 0);

// What attention gave for its rows, and the gradient of that.
struct AttendedRows {
  ValueId dout, out, lse;
};
// Of a parameter of sinks, where there is one (attention.cpp).
void add_sink_gradient(GradientBuilder& builder, ValueId sinks, const AttendedRows& rows,
                       const SinkGradAttrs& attrs);

inline constexpr Placement kR = Placement::replicated();
inline constexpr Placement kP = Placement::partial();
inline constexpr Placement kS0 = Placement::sharded(0);
inline constexpr Placement kS1 = Placement::sharded(1);

// Work of an op that streams its operands and does `per_element` operations for each element of its first
// input.
inline Cost streamed(const NodeView& view, double per_element) {
  return {per_element * static_cast<double>(view.in(0).shape.elements()), graph::streamed_bytes(view)};
}
template <typename Op>
Cost streamed(const View<Op>& node, double per_element) {
  return streamed(node.untyped(), per_element);
}

// A localize hook of ops that only learn how many ranks their axis has.
template <typename Attrs>
graph::Attributes localize_ranks(const NodeView& view) {
  auto attrs = view.attrs<Attrs>();
  attrs.ranks = view.graph.mesh().size(attrs.axis);
  return attrs;
}

}  // namespace strata::ops
