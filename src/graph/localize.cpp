#include "graph/localize.h"

#include "base/error.h"
#include "graph/op.h"
#include "graph/shard.h"

namespace strata::graph {
namespace {

// Gives a value the shape of the part that every rank holds.
void shrink(Value& value, const Mesh& mesh) {
  const auto spans = spans_of(value, value.shape, value.segments, mesh, mesh.coordinates(0));
  value.global_shape = value.shape;
  value.global_segments = value.segments;
  for (int dim = 0; dim < value.shape.rank(); ++dim) {
    int64_t size = 0;
    for (const Span& span : spans[static_cast<size_t>(dim)]) size += span.size();
    value.shape.set(dim, size);
  }
  if (value.segments.empty()) return;
  const auto& parts = spans[static_cast<size_t>(value.segment_dim())];
  for (size_t i = 0; i < parts.size(); ++i) value.segments[i] = parts[i].size();
}

bool has_sizes_of_its_own(const Value& value) {
  for (const Placement placement : value.placements) {
    if (placement.kind == Placement::Kind::kSharded) return false;
  }
  return true;
}

}  // namespace

void localize(Graph& graph) {
  if (graph.mesh().ranks() == 1) return;
  for (Node& node : graph.nodes()) {
    if (node.op->localize != nullptr) node.attrs = node.op->localize({graph, node});
  }
  for (ValueId id = 0; id < graph.value_count(); ++id) shrink(graph.value(id), graph.mesh());
  // What the ops make of their inputs' parts must be their outputs' parts.
  for (const Node& node : graph.nodes()) {
    const auto specs = node.op->infer({graph, node});
    for (size_t i = 0; i < specs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      Value& out = graph.value(node.outputs[i]);
      // Partial sums by blocks, and the like: as many as the part has blocks.
      if (out.role == Role::kActivation && has_sizes_of_its_own(out)) {
        out.shape = specs[i].shape;
        out.segments = specs[i].segments;
      }
      STRATA_CHECK(out.shape == specs[i].shape, "on a rank {} gives {}, but its part of {} is {}",
                   node.op->name, specs[i].shape.str(), out.name, out.shape.str());
    }
  }
}

}  // namespace strata::graph
