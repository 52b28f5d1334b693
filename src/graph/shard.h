// Which part of a value each rank of a mesh holds.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace strata::graph {

// Indices [begin, end) along a dimension.
struct Span {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

// Indices of the whole that a rank holds, and the first of its own where they lie. Between held spans lies
// padding, which is zeros.
struct HeldSpan {
  Span whole;
  int64_t at = 0;
  bool operator==(const HeldSpan&) const = default;
};

// How the parts of a dimension are cut along one axis.
struct Cut {
  std::vector<int64_t> parts;  // sizes of the parts that are concatenated along the dimension
  int64_t ranks = 1;
  int64_t grain = 0;  // 0: shares are equal and without padding; else as Padding says
  // Above 0: the one part is sequences of this many entries. Each is cut into 2 · ranks equal chunks, and
  // rank i has the i-th from the begin and the i-th from the end: what rows see of rows before them is then
  // the same work on all ranks.
  int64_t sequence = 0;
  // Each rank has as many of the parts as the others, whole: those behind the parts of the ranks before it.
  bool deals = false;
  std::vector<int64_t> apart = {};  // the parts before neighbours were joined (Padding::joined); else empty
  bool operator==(const Cut&) const = default;
};
// What one rank has room for of a part, where parts are not dealt out. The part must divide where grain is 0.
int64_t share_of(const Cut& cut, size_t part);
// What one rank has room for: of all parts together; and each.
int64_t held_size(const Cut& cut);
std::vector<int64_t> shares_of(const Cut& cut);
// What rank `index` of the axis holds of the parts, behind one another as they lie in the whole; empty spans
// are left out.
std::vector<HeldSpan> held_of(const Cut& cut, int64_t index);

// The parts of a dimension as a rank has them when all axes but `axis` have cut it, and how that one cuts
// them further. `value` is as it is before localize(). ConfigError where a part does not divide.
Cut cut_along(const Value& value, int dim, const Mesh& mesh, Axis axis);

// All cuts of a dimension in the order in which they are made: each cuts what the ones before it leave a
// rank.
struct AxisCut {
  Axis axis = {};
  Cut cut;
};
std::vector<AxisCut> cuts_of(const Value& value, int dim, const Mesh& mesh);

// Whether an axis of several ranks cuts the value.
bool is_sharded(const Graph& graph, const Value& value);

// Along each dimension the indices of the whole that a rank holds, in the order in which they lie there.
// `value` may have been at localize() or not.
std::vector<std::vector<HeldSpan>> held_spans(const Value& value, const Mesh& mesh,
                                              const Coordinates& coordinates);
// The sizes of a rank's parts along a dimension, padding included; of a value that is not localized.
std::vector<int64_t> parts_on_rank(const Value& value, int dim, const Mesh& mesh);
// The parts of the whole that those are shares of, one by one: as the value has them, or joined.
std::vector<int64_t> parts_shared(const Value& value, int dim, const Mesh& mesh);

}  // namespace strata::graph
