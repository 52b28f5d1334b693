#include "program/collectives.h"

#include <algorithm>
#include <compare>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/zero.h"
#include "program/passes.h"

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Placement;
using graph::Reshard;
using graph::ReshardAttrs;
using graph::Role;
using graph::Value;
using graph::ValueId;

namespace {

// --- Position

// Gathered values that only encoders read need not be saved after the update.
void gather_before_encoding(Graph& graph) {
  std::map<ValueId, bool> only_encoded;  // of values gathered after each update
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kEncode && graph::is_gather(graph, node))
      only_encoded[node.outputs.front()] = true;
  }
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) {
      const auto found = only_encoded.find(input);
      if (found != only_encoded.end() && node.phase != Phase::kEncode) found->second = false;
    }
  }
  std::map<ValueId, Node> late;
  std::vector<Node> old = std::move(graph.nodes());
  graph.nodes().clear();
  for (Node& node : old) {
    if (node.op == &Reshard::def) {
      const auto found = only_encoded.find(node.outputs.front());
      if (found != only_encoded.end() && found->second) {
        graph.value(found->first).role = Role::kActivation;
        late[found->first] = std::move(node);
        continue;
      }
    }
    for (const ValueId input : node.inputs) {
      const auto found = late.find(input);
      if (found == late.end()) continue;
      graph.nodes().push_back(std::move(found->second));
      late.erase(found);
    }
    graph.nodes().push_back(std::move(node));
  }
}

// Whole sums take the place of the terms that micro-batches have accumulated.
void reduce_in_place(Graph& graph) {
  std::map<ValueId, ValueId> now;  // by the sum: the accumulator
  for (Node& node : graph.nodes()) {
    if (node.phase != Phase::kUpdate) continue;
    for (std::vector<ValueId>* operands : {&node.inputs, &node.outputs}) {
      for (ValueId& operand : *operands) {
        const auto moved = now.find(operand);
        if (moved != now.end()) operand = moved->second;
      }
    }
    if (node.op != &Reshard::def) continue;
    const auto& attrs = node.attrs.as<ReshardAttrs>();
    const ValueId x = node.inputs.front();
    if (attrs.from != Placement::partial() || attrs.to != Placement::replicated() ||
        graph.value(x).role != Role::kGradient)
      continue;
    // The value after the step.
    graph.value(x).placements.set(attrs.axis, Placement::replicated());
    now[node.outputs.front()] = x;
    node.outputs.front() = x;
  }
}

enum class Family { kNone, kGather, kScatter, kReduce };

// `was_reduced`: the moved value is a gradient's sum along another axis.
Family family_of(const Graph& graph, const Node& node, bool was_reduced) {
  if (node.op != &Reshard::def) return Family::kNone;
  const Role role = graph.value(node.inputs.front()).role;
  if (graph::is_gather(graph, node)) return Family::kGather;
  if (role == Role::kTerms) return Family::kScatter;
  // What an optimizer assembles of a gradient is not a sum.
  const bool sums = node.attrs.as<ReshardAttrs>().from == Placement::partial();
  return sums && node.phase == Phase::kUpdate && (role == Role::kGradient || was_reduced) ? Family::kReduce
                                                                                          : Family::kNone;
}

// Merges nodes that move data in the same way for one layer: gathers at the position of the first, reductions
// at the position of the last. A value reduced along several axes is reduced axis by axis: groups are split
// by the number of preceding reductions.
class Grouping {
 public:
  Grouping(Graph& graph, int64_t prefetch) : graph_(graph), prefetch_(static_cast<size_t>(prefetch)) {}

  void run() {
    collect();
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    const std::map<size_t, std::vector<const Group*>> at = places();
    std::vector<bool> moves(old.size(), false);
    for (const auto& [key, group] : groups_) {
      for (const size_t member : group) moves[member] = true;
    }
    for (size_t i = 0; i < old.size(); ++i) {
      const auto here = at.find(i);
      if (here != at.end()) {
        for (const Group* group : here->second) graph_.nodes().push_back(joined(old, *group));
      }
      if (!moves[i]) graph_.nodes().push_back(std::move(old[i]));
    }
  }

 private:
  struct Key {
    Family family;
    Phase phase;
    int32_t layer;
    int32_t chunk;
    int64_t earlier_axes;  // reductions along other axes before
    graph::Axis axis;
    std::string move;
    size_t single;                                 // gathers outside of layers are used far apart
    bool moves_codes;                              // in kEncode, what its nodes make between gathers
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): there is no null
  };
  using Group = std::vector<size_t>;  // nodes

  void collect() {
    std::map<ValueId, int64_t> earlier_axes;  // of reduced values
    std::map<ValueId, size_t> written;        // by its last writer
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const ValueId x = node.inputs.empty() ? kNone : node.inputs.front();
      const int64_t earlier = earlier_axes.contains(x) ? earlier_axes.at(x) : 0;
      const Family family = family_of(graph_, node, earlier > 0);
      if (family == Family::kNone) {
        for (const ValueId output : node.outputs) written[output] = i;
        continue;
      }
      const auto& attrs = node.attrs.as<ReshardAttrs>();
      if (family != Family::kGather) earlier_axes[node.outputs.front()] = earlier + 1;
      const bool single = family == Family::kGather && node.layer == kNone && node.phase != Phase::kEncode;
      // Copies in bf16 are made before all gathers (program/narrow.h).
      const bool moves_codes = node.phase == Phase::kEncode && graph_.value(x).role == Role::kEncoded &&
                               graph_.value(x).dtype != DType::kBF16;
      groups_[{family, node.phase, node.layer, node.chunk, earlier, attrs.axis,
               fmt::format("{}{}{}", str(attrs.from), str(attrs.to), fmt::join(attrs.among, ",")),
               single ? i + 1 : 0, moves_codes}]
          .push_back(i);
      if (family == Family::kReduce) {
        const auto made = written.find(x);
        size_t& ready = ready_[node.layer];
        if (made != written.end()) ready = std::max(ready, made->second);
      }
      if (family == Family::kScatter) written[node.outputs.front()] = i;
    }
  }

  // The groups by the node that they precede, in order.
  std::map<size_t, std::vector<const Group*>> places() const {
    std::map<size_t, std::vector<const Group*>> at;
    std::map<Phase, std::vector<const Group*>> gathers;
    std::vector<std::pair<const Key*, const Group*>> reductions;
    size_t last_reduced = 0;
    for (const auto& [key, group] : groups_) {
      if (key.family == Family::kGather && key.phase != Phase::kEncode) {
        gathers[key.phase].push_back(&group);
      } else if (key.family == Family::kReduce) {
        reductions.emplace_back(&key, &group);
        last_reduced = std::max(last_reduced, group.back());
      } else {
        at[key.family == Family::kGather && !key.moves_codes ? group.front() : group.back()].push_back(
            &group);
      }
    }
    for (auto& [phase, in_order] : gathers) {
      std::sort(in_order.begin(), in_order.end(),
                [](const Group* a, const Group* b) { return a->front() < b->front(); });
      for (size_t i = 0; i < in_order.size(); ++i)
        at[in_order[i - std::min(i, prefetch_)]->front()].push_back(in_order[i]);
    }
    // The layer whose backward finishes first comes first, and each axis after those before it.
    std::stable_sort(reductions.begin(), reductions.end(), [this](const auto& a, const auto& b) {
      return std::tie(ready_.at(a.first->layer), a.first->earlier_axes) <
             std::tie(ready_.at(b.first->layer), b.first->earlier_axes);
    });
    for (const auto& [key, group] : reductions) at[last_reduced].push_back(group);
    return at;
  }

  static Node joined(const std::vector<Node>& nodes, const std::vector<size_t>& members) {
    Node node = nodes[members.front()];
    auto attrs = node.attrs.as<ReshardAttrs>();
    for (size_t i = 1; i < members.size(); ++i) {
      const Node& one = nodes[members[i]];
      const auto& cuts = one.attrs.as<ReshardAttrs>().cuts;
      node.inputs.insert(node.inputs.end(), one.inputs.begin(), one.inputs.end());
      node.outputs.insert(node.outputs.end(), one.outputs.begin(), one.outputs.end());
      attrs.cuts.insert(attrs.cuts.end(), cuts.begin(), cuts.end());
    }
    node.attrs = attrs;
    return node;
  }

  Graph& graph_;
  const size_t prefetch_;
  std::map<Key, Group> groups_;
  std::map<int32_t, size_t> ready_;  // by layer: the node that makes the last value which the update reduces
};

// --- What a communicator is asked for

// Bytes of one entry of a dimension, how many rows of entries there are, and how long they are.
struct Strides {
  Strides(const Value& value, int dim) : dimension(value.shape[dim]) {
    bytes = size_of(value.dtype);
    for (int i = 0; i < dim; ++i) rows *= value.shape[i];
    for (int i = dim + 1; i < value.shape.rank(); ++i) bytes *= value.shape[i];
  }
  comm::Run run(int64_t first, int64_t entries) const {
    if (entries == dimension) return {0, rows * bytes * entries, 1, 0};
    return {first * bytes, entries * bytes, rows, rows > 1 ? dimension * bytes : 0};
  }
  int64_t dimension, bytes = 1, rows = 1;
};

// The elements of a dimension that member `index` has: their offsets in the whole, or in its own shard.
comm::Runs runs_of(const graph::Cut& cut, int index, const Strides& strides, bool in_whole) {
  comm::Runs runs;
  for (const graph::HeldSpan& held : graph::held_of(cut, index))
    runs.push_back(strides.run(in_whole ? held.whole.begin : held.at, held.whole.size()));
  return runs;
}

std::vector<comm::Runs> runs_of_all(const graph::Cut& cut, const Strides& strides) {
  std::vector<comm::Runs> all;
  for (int member = 0; member < cut.ranks; ++member) all.push_back(runs_of(cut, member, strides, true));
  return all;
}

// Indices of one dimension.
struct Along {
  int dim;
  int64_t first, size;
};

// Adds the elements that both ranges of a value contain, in memory order.
void add_block(const Value& value, Along outer, Along inner, comm::Runs& runs) {
  if (outer.dim > inner.dim) std::swap(outer, inner);
  const Shape& shape = value.shape;
  int64_t before = 1, between = 1, bytes = size_of(value.dtype);
  for (int i = 0; i < outer.dim; ++i) before *= shape[i];
  for (int i = outer.dim + 1; i < inner.dim; ++i) between *= shape[i];
  for (int i = inner.dim + 1; i < shape.rank(); ++i) bytes *= shape[i];
  const int64_t row = shape[inner.dim] * bytes, rows = outer.size * between;
  for (int64_t i = 0; i < before; ++i) {
    const int64_t offset = (i * shape[outer.dim] + outer.first) * between * row + inner.first * bytes;
    const bool whole = inner.size == shape[inner.dim];
    runs.push_back(whole ? comm::Run{offset, rows * row, 1, 0}
                         : comm::Run{offset, inner.size * bytes, rows, row});
  }
}

// What a member of one sharding sends a member of another: both sides list the same blocks in the same order.
struct Resharding {
  const ReshardAttrs& attrs;
  const graph::ReshardCuts& cuts;

  comm::Runs sent(const Value& x, int from, int to) const { return blocks(x, from, to, true); }
  comm::Runs received(const Value& y, int from, int to) const { return blocks(y, from, to, false); }

 private:
  // The blocks of a value in its old sharding, or already in the new one.
  comm::Runs blocks(const Value& value, int from, int to, bool before) const {
    comm::Runs runs;
    for (const graph::HeldSpan& had : graph::held_of(cuts.from, from)) {
      for (const graph::HeldSpan& gets : graph::held_of(cuts.to, to))
        add_block(value, {attrs.from.dim, before ? had.at : had.whole.begin, had.whole.size()},
                  {attrs.to.dim, before ? gets.whole.begin : gets.at, gets.whole.size()}, runs);
    }
    return runs;
  }
};

comm::Transfer transfer_of(const ReshardAttrs& attrs, const graph::ReshardCuts& cuts, const Value& x,
                           const Value& y, int rank) {
  using Kind = Placement::Kind;
  comm::Transfer transfer{.dtype = x.dtype, .bytes = y.bytes()};
  if (attrs.from.kind == Kind::kPartial) {
    if (attrs.to.kind != Kind::kSharded) return transfer;
    transfer.send = runs_of_all(cuts.to, Strides(x, attrs.to.dim));
    transfer.receive = {runs_of(cuts.to, rank, Strides(y, attrs.to.dim), false)};
    return transfer;
  }
  if (attrs.shift != 0) {
    transfer.send.resize(static_cast<size_t>(attrs.ranks));
    transfer.receive.resize(static_cast<size_t>(attrs.ranks));
    const auto around = [&](int64_t places) {
      return static_cast<size_t>(((rank + places) % attrs.ranks + attrs.ranks) % attrs.ranks);
    };
    transfer.send[around(attrs.shift)] = {{.bytes = x.bytes()}};
    transfer.receive[around(-attrs.shift)] = {{.bytes = y.bytes()}};
    return transfer;
  }
  if (attrs.to.kind == Kind::kSharded) {
    const Resharding blocks{attrs, cuts};
    for (int member = 0; member < cuts.to.ranks; ++member) {
      transfer.send.push_back(blocks.sent(x, rank, member));
      transfer.receive.push_back(blocks.received(y, member, rank));
    }
  } else {
    transfer.send = {runs_of(cuts.from, rank, Strides(x, attrs.from.dim), false)};
    transfer.receive = runs_of_all(cuts.from, Strides(y, attrs.from.dim));
  }
  return transfer;
}

}  // namespace

void group_collectives_pass(Graph& graph, int64_t prefetch) {
  if (graph.mesh().ranks() == 1) return;
  gather_before_encoding(graph);
  reduce_in_place(graph);
  Grouping(graph, prefetch).run();
}

comm::Operation operation_of(const Graph& graph, const Node& node, int rank, DType payload) {
  const auto& attrs = node.attrs.as<ReshardAttrs>();
  const bool sums = attrs.from.kind == Placement::Kind::kPartial;
  const bool scatters = attrs.to.kind == Placement::Kind::kSharded;
  comm::Operation operation;
  operation.collective = !sums      ? comm::Collective::kExchange
                         : scatters ? comm::Collective::kReduceScatter
                                    : comm::Collective::kAllReduce;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value &x = graph.value(node.inputs[i]), &y = graph.value(node.outputs[i]);
    operation.transfers.push_back(transfer_of(attrs, attrs.cuts[i], x, y, rank));
    if (sums && (x.role == Role::kGradient || x.role == Role::kTerms)) operation.payload = payload;
  }
  operation.label = fmt::format(
      "{} of {}{} on {}",
      sums               ? scatters ? "reduce-scatter" : "all-reduce"
      : attrs.shift != 0 ? "shift"
      : scatters         ? "all-to-all"
                         : "all-gather",
      graph.value(node.inputs.front()).name,
      node.inputs.size() > 1 ? fmt::format(" and {} more", node.inputs.size() - 1) : "", name_of(attrs.axis));
  return operation;
}

}  // namespace strata::program
