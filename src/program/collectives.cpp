#include "program/collectives.h"

#include <compare>
#include <map>

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

// --- Where they stand

// What is put together once an update and read by nothing but encoders need not be kept.
void gather_before_encoding(Graph& graph) {
  std::map<ValueId, bool> only_encoded;  // of what is gathered after each update
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kEncode && graph::is_gather(graph, node))
      only_encoded[node.outputs[Reshard::kY]] = true;
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
    if (node.op == &graph::kReshard) {
      const auto found = only_encoded.find(node.outputs[Reshard::kY]);
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

enum class Family { kNone, kGather, kScatter, kReduce };

Family family_of(const Graph& graph, const Node& node) {
  if (node.op != &graph::kReshard) return Family::kNone;
  const Value& x = graph.value(node.inputs[Reshard::kX]);
  if (graph::is_gather(graph, node)) {
    // Those that belong to no layer are far apart where they are used.
    return node.layer == kNone && node.phase != Phase::kEncode ? Family::kNone : Family::kGather;
  }
  if (x.role == Role::kTerms) return Family::kScatter;
  return node.phase == Phase::kUpdate && x.dtype == DType::kF32 ? Family::kReduce : Family::kNone;
}

// Puts nodes that move data alike for one layer into one: gathers where the first of them stands, what is
// reduced where the last does. What is reduced along several axes goes axis by axis: by the reductions that
// came before.
class Grouping {
 public:
  explicit Grouping(Graph& graph) : graph_(graph) {}

  void run() {
    collect();
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    std::map<size_t, std::vector<const std::vector<size_t>*>>
        at;  // groups by the place where they go, in their order
    std::vector<bool> moves(old.size(), false);
    for (const auto& [key, members] : groups_) {
      at[place_of(key, members)].push_back(&members);
      for (const size_t member : members) moves[member] = true;
    }
    for (size_t i = 0; i < old.size(); ++i) {
      const auto here = at.find(i);
      if (here != at.end()) {
        for (const auto* members : here->second) graph_.nodes().push_back(joined(old, *members));
      }
      if (!moves[i]) graph_.nodes().push_back(std::move(old[i]));
    }
  }

 private:
  // Of the groups at one place the first in this order comes first.
  struct Key {
    Family family;
    Phase phase;
    int32_t layer;
    int64_t hops;  // reductions along other axes before
    int64_t axis;
    std::string move;
    auto operator<=>(const Key&) const = default;
  };

  void collect() {
    std::map<ValueId, int64_t> hops;  // of what was reduced
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const Family family = family_of(graph_, node);
      if (family == Family::kNone) continue;
      const auto& attrs = node.attrs.as<ReshardAttrs>();
      const auto before = hops.find(node.inputs[Reshard::kX]);
      const int64_t hop = before == hops.end() ? 0 : before->second;
      hops[node.outputs[Reshard::kY]] = hop + 1;
      groups_[{family, node.phase, node.layer, hop, attrs.axis, str(attrs.from) + str(attrs.to)}].push_back(
          i);
      if (family == Family::kReduce) last_reduced_[node.layer] = i;
    }
  }

  size_t place_of(const Key& key, const std::vector<size_t>& members) const {
    if (key.family == Family::kGather) return members.front();
    return key.family == Family::kReduce ? last_reduced_.at(key.layer) : members.back();
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
  std::map<Key, std::vector<size_t>> groups_;
  std::map<int32_t, size_t> last_reduced_;  // by layer
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

// What member `index` has of a dimension: where it lies in the whole, or in its own share.
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
  const Strides of_parts(y, attrs.from.dim);
  transfer.receive = runs_of_all(cuts.from, of_parts);
  if (attrs.to.kind == Kind::kSharded) {
    STRATA_CHECK(cuts.from.grain == 0 && cuts.to.grain == 0 && cuts.from.parts.size() == 1 &&
                     cuts.to.parts.size() == 1,
                 "{} has parts or padding and is sharded along another dimension", x.name);
    transfer.send = runs_of_all(cuts.to, Strides(x, attrs.to.dim));
  } else {
    transfer.send = {runs_of(cuts.from, rank, Strides(x, attrs.from.dim), false)};
  }
  return transfer;
}

}  // namespace

void group_collectives_pass(Graph& graph) {
  if (graph.mesh().ranks() == 1) return;
  gather_before_encoding(graph);
  Grouping(graph).run();
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
  const std::string& axis = graph.mesh().axes[static_cast<size_t>(attrs.axis)].name;
  operation.label =
      fmt::format("{} of {}{} on {}",
                  sums       ? scatters ? "reduce-scatter" : "all-reduce"
                  : scatters ? "all-to-all"
                             : "all-gather",
                  graph.value(node.inputs[0]).name,
                  node.inputs.size() > 1 ? fmt::format(" and {} more", node.inputs.size() - 1) : "", axis);
  return operation;
}

}  // namespace strata::program
