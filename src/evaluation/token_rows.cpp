#include "evaluation/token_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "program/expert_passes.h"

namespace strata::evaluation {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using graph::ValueId;

// The rows of [0, all) that a rank holds of a value. Axes shard one after the other. Ranks of the context
// axis have chunks from both ends of every sequence.
std::vector<int64_t> held_rows(const Value& value, const graph::Mesh& mesh,
                               const graph::Coordinates& coordinates, int64_t all, int64_t sequence) {
  std::vector<int64_t> rows(static_cast<size_t>(all));
  std::iota(rows.begin(), rows.end(), 0);
  for (const graph::Axis axis : graph::kAllAxes) {
    if (mesh.size(axis) == 1 || value.placements[axis] != graph::Placement::sharded(0)) continue;
    const graph::Cut cut{
        {std::ssize(rows)}, mesh.size(axis), 0, axis == graph::Axis::kContext ? sequence : 0};
    std::vector<int64_t> held;
    for (const graph::HeldSpan& span : graph::held_of(cut, coordinates[axis]))
      held.insert(held.end(), rows.begin() + span.whole.begin, rows.begin() + span.whole.end);
    rows = std::move(held);
  }
  return rows;
}

class Finder {
 public:
  Finder(const program::ProgramSet& set, const program::Program& program,
         const graph::Coordinates& coordinates)
      : graph_(program.graph),
        views_(program.views),
        request_(program.request),
        mesh_(set.options.mesh),
        coordinates_(coordinates),
        sequences_(request_.sequences * mesh_.batch_ranks()),
        reads_batch_(static_cast<size_t>(graph_.value_count())),
        of_passes_(program::values_of_passes(graph_)) {}

  ProgramRows find() {
    for (ValueId id = 0; id < graph_.value_count(); ++id)
      reads_batch_[static_cast<size_t>(id)] = graph_.value(id).role == graph::Role::kInput ||
                                              graph_.value(id).passage == graph::Value::Passage::kReceived;
    found_.by_node.resize(graph_.nodes().size());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (runs_forward(graph_.nodes()[i])) look_at(graph_.nodes()[i], found_.by_node[i]);
    }
    return std::move(found_);
  }

 private:
  // Whether an input of the node depends on the batch, or is a view of a value that does.
  bool reads_batch(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != graph::kNone && (reads_batch_[static_cast<size_t>(id)] ||
                                    reads_batch_[static_cast<size_t>(program::view_of(views_, id).whole)]);
    });
  }

  // Whether the rows of a result belong to other tokens regardless of their number (shards received in a
  // ring, tokens received by a rank's experts), or are incomplete.
  bool has_other_rows(const Node& node, ValueId output) const {
    if (of_passes_[static_cast<size_t>(output)] || node.loop != graph::kNone) return true;
    if (node.op == &ops::CombineRows::def) return !node.attrs.as<ops::DispatchAttrs>().takes_any_routing();
    return node.op == &graph::Reshard::def && node.attrs.as<graph::ReshardAttrs>().shift != 0;
  }

  void look_at(const Node& node, std::vector<TokenRows>& of_node) {
    if (!reads_batch(node)) return;
    bool makes_metric = false;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == graph::kNone) continue;
      reads_batch_[static_cast<size_t>(id)] = true;
      reads_batch_[static_cast<size_t>(program::view_of(views_, id).whole)] = true;
      makes_metric = makes_metric || graph_.value(id).role == graph::Role::kMetric;
      if (const int rows = has_other_rows(node, id) ? -1 : rows_of(graph_.value(id)); rows >= 0) {
        const Value& value = graph_.value(id);
        of_node.push_back({node.inputs.size() + o, id, static_cast<size_t>(rows),
                           value.bytes() / std::max<int64_t>(1, value.shape[0])});
        ++found_.values;
      }
    }
    const std::string name(node.op->name);
    if (of_node.empty() && !makes_metric && node.op->has_kernel() &&
        std::find(found_.unseen.begin(), found_.unseen.end(), name) == found_.unseen.end())
      found_.unseen.push_back(name);
  }

  // The map of a value's rows; -1: its rows are not tokens.
  int rows_of(const Value& value) {
    if (value.role != graph::Role::kActivation || value.encoding.kind != graph::Encoding::Kind::kPlain)
      return -1;
    // On a mesh, a value without a global shape is a part of another value's rows.
    const bool is_whole = value.sharding.global_shape.rank() == 0;
    if (is_whole && mesh_.ranks() > 1) return -1;
    const Shape& shape = is_whole ? value.shape : value.sharding.global_shape;
    if (shape.rank() == 0) return -1;
    const bool of_encoder =
        shape[0] == sequences_ * request_.encoder_length && shape[0] != sequences_ * request_.sequence_length;
    if (!of_encoder && shape[0] != sequences_ * request_.sequence_length) return -1;
    const auto [known, is_new] =
        maps_.try_emplace({of_encoder, value.placements}, static_cast<int>(found_.maps.size()));
    if (is_new) {
      const int64_t length = of_encoder ? request_.encoder_length : request_.sequence_length;
      found_.maps.push_back({of_encoder, held_rows(value, mesh_, coordinates_, shape[0], length)});
    }
    const auto here = std::ssize(found_.maps[static_cast<size_t>(known->second)].rows);
    return here == value.shape[0] ? known->second : -1;
  }

  const Graph& graph_;
  const program::RowViews& views_;
  const program::Request& request_;
  const graph::Mesh& mesh_;
  const graph::Coordinates& coordinates_;
  int64_t sequences_;  // of the whole micro-batch
  std::vector<bool> reads_batch_, of_passes_;
  std::map<std::pair<bool, graph::Placements>, int> maps_;
  ProgramRows found_;
};

}  // namespace

bool runs_forward(const Node& node) {
  return node.phase == graph::Phase::kForward || node.phase == graph::Phase::kRecompute;
}

ProgramRows find_token_rows(const program::ProgramSet& set, const program::Program& program,
                            const graph::Coordinates& coordinates) {
  return Finder(set, program, coordinates).find();
}

}  // namespace strata::evaluation
