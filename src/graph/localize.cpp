#include "graph/localize.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/op.h"
#include "graph/shard.h"

namespace strata::graph {
namespace {

// Sets a value's shape to that of the part that every rank holds.
void shrink(Value& value, const Mesh& mesh) {
  std::vector<std::vector<int64_t>> parts;
  for (int dim = 0; dim < value.shape.rank(); ++dim) parts.push_back(parts_on_rank(value, dim, mesh));
  value.sharding.global_shape = value.shape;
  value.sharding.global_segments = value.segments;
  for (int dim = 0; dim < value.shape.rank(); ++dim) {
    const auto& along = parts[static_cast<size_t>(dim)];
    value.shape.set(dim, std::accumulate(along.begin(), along.end(), int64_t{0}));
  }
  if (!value.segments.empty()) value.segments = parts[static_cast<size_t>(value.segment_dim())];
}

bool has_sizes_of_its_own(const Value& value) {
  return std::none_of(kAllAxes.begin(), kAllAxes.end(),
                      [&](Axis axis) { return value.placements[axis].kind == Placement::Kind::kSharded; });
}

}  // namespace

void localize(Graph& graph) {
  if (graph.mesh().ranks() == 1) return;
  for (Node& node : graph.nodes()) {
    if (node.op->localize != nullptr) node.attrs = node.op->localize({graph, node});
  }
  for (ValueId id = 0; id < graph.value_count(); ++id) shrink(graph.value(id), graph.mesh());
  // Check that each op, applied to the parts of its inputs, produces the parts of its outputs.
  for (const Node& node : graph.nodes()) {
    const auto specs = node.op->infer({graph, node});
    for (size_t i = 0; i < specs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      Value& out = graph.value(node.outputs[i]);
      // Partial sums by blocks, and the like: as many as the part has blocks.
      if (is_temporary(out.role) && has_sizes_of_its_own(out)) {
        out.shape = specs[i].shape;
        out.segments = specs[i].segments;
      }
      STRATA_CHECK(out.shape == specs[i].shape, "on a rank {} produces {}, but its part of {} is {}",
                   node.op->name, specs[i].shape.str(), out.name, out.shape.str());
    }
  }
}

}  // namespace strata::graph
