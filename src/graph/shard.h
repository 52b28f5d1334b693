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

// Along each dimension the global indices that a rank holds, in the order in which they lie there: one span,
// or one for each segment. `shape` and `segments` are those of the whole. ConfigError where a part does not
// divide.
std::vector<std::vector<Span>> spans_of(const Value& value, const Shape& shape,
                                        const std::vector<int64_t>& segments, const Mesh& mesh,
                                        const Coordinates& coordinates);
// Of a value that localize() has been at, or that no mesh splits.
std::vector<std::vector<Span>> spans_of(const Value& value, const Mesh& mesh, const Coordinates& coordinates);

}  // namespace strata::graph
