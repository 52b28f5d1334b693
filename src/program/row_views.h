// Values that are rows of other values and share their memory.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "graph/graph.h"

namespace strata::program {

struct RowView {
  graph::ValueId whole = graph::kNone;
  int64_t offset = 0;  // in the whole, in bytes
};
// By the value that is rows of another. Views are activations, as their wholes, and no view is within a view.
using RowViews = std::unordered_map<graph::ValueId, RowView>;

// Location of a value: in the whole, or by itself.
inline RowView view_of(const RowViews& views, graph::ValueId id) {
  const auto found = views.find(id);
  return found == views.end() ? RowView{id, 0} : found->second;
}

}  // namespace strata::program
