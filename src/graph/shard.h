// The part of a value that each rank of a mesh holds.
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

// A range of indices of the whole that a rank holds, and the position of its first element in the rank's
// memory. Padding between held spans is zeros.
struct HeldSpan {
  Span whole;
  int64_t at = 0;
  bool operator==(const HeldSpan&) const = default;
};

// How the parts of a dimension are cut along one axis.
struct Cut {
  std::vector<int64_t> parts;  // sizes of the parts that are concatenated along the dimension
  int64_t ranks = 1;
  int64_t alignment = 0;  // 0: shards are equal and without padding; else see Padding
  // Above 0: the one part is sequences of this many entries. Each is cut into 2 · ranks equal chunks, and
  // rank i has the i-th from the begin and the i-th from the end: what rows see of rows before them is then
  // the same work on all ranks.
  int64_t sequence = 0;
  // Each rank has the same number of parts, whole: those after the parts of the ranks before it.
  bool deals = false;
  std::vector<int64_t> apart = {};  // the parts before neighbours were joined (Padding::joined); else empty
  bool operator==(const Cut&) const = default;
};
// Capacity of one rank for a part, if parts are not distributed. The part must be divisible if alignment is 0.
int64_t share_of(const Cut& cut, size_t part);
// Capacity of one rank: for all parts together; and for each.
int64_t held_size(const Cut& cut);
std::vector<int64_t> shares_of(const Cut& cut);
// The ranges of the parts that rank `index` of the axis holds, consecutive in the order of the whole; empty
// ranges are omitted.
std::vector<HeldSpan> held_of(const Cut& cut, int64_t index);

// The parts of a dimension as a rank has them after all axes except `axis` have cut it, and how that axis
// cuts them further. `value` is in its state before localize(). ConfigError if a part does not divide.
Cut cut_along(const Value& value, int dim, const Mesh& mesh, Axis axis);

// All cuts of a dimension in the order in which they are made: each cuts the part that the earlier ones leave
// on a rank.
struct AxisCut {
  Axis axis = {};
  Cut cut;
};
std::vector<AxisCut> cuts_of(const Value& value, int dim, const Mesh& mesh);

// Whether an axis of several ranks cuts the value.
bool is_sharded(const Graph& graph, const Value& value);

// Along each dimension the indices of the whole that a rank holds, in the order of its memory. `value` may
// have been localized or not.
std::vector<std::vector<HeldSpan>> held_spans(const Value& value, const Mesh& mesh,
                                              const Coordinates& coordinates);
// The sizes of a rank's parts along a dimension, padding included; of a value that is not localized.
std::vector<int64_t> parts_on_rank(const Value& value, int dim, const Mesh& mesh);
// The parts of the whole that those are shares of, one by one: as the value has them, or joined.
std::vector<int64_t> parts_shared(const Value& value, int dim, const Mesh& mesh);

}  // namespace strata::graph
