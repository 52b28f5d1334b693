#include "graph/zero.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/typed_op.h"

namespace strata::graph {
namespace {

bool is_on(const Graph& graph, int stage) {
  return stage > 0 && graph.mesh().size(Axis::kShard) > 1;
}

ValueId add_whole(Graph& graph, ValueId parameter, Role role, std::string name) {
  const Value& shard = graph.value(parameter);
  Value whole;
  whole.name = std::move(name);
  whole.shape = shard.shape;
  whole.role = role;
  whole.placements = shard.placements;
  whole.placements.set(Axis::kShard, Placement::replicated());
  whole.segments = shard.segments;
  whole.segments_along = shard.segments_along;
  whole.sharding.padding.uneven = shard.sharding.padding.uneven;
  whole.sharding.distributed_axes = shard.sharding.distributed_axes;
  whole.sharding.whole_of = parameter;
  return graph.add_value(std::move(whole));
}

// Gathers parameters for the nodes of a graph, before their readers or once after each update.
class Gatherer {
 public:
  Gatherer(Graph& graph, int stage) : graph_(graph), stage_(stage) {}

  void run(const std::vector<bool>& is_sharded) {
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    for (Node& node : old) {
      for (ValueId& input : node.inputs) {
        if (input != kNone && static_cast<size_t>(input) < is_sharded.size() &&
            is_sharded[static_cast<size_t>(input)])
          input = whole_for(node, input);
      }
      graph_.nodes().push_back(std::move(node));
    }
    graph_.set_phase(Phase::kForward);
    graph_.set_layer(kNone);
    graph_.set_chunk(0);
  }

 private:
  ValueId whole_for(const Node& reader, ValueId parameter) {
    // Readers in one layer share the gathered weight; others, such as a tied embedding and the head, are far
    // apart.
    const int32_t layer = stage_ < 3 ? kNone : reader.layer;
    const bool shares = stage_ < 3 || layer != kNone;
    const auto key = std::make_pair(parameter, layer);
    if (shares) {
      const auto made = made_.find(key);
      if (made != made_.end()) return made->second;
    }
    std::string name = graph_.value(parameter).name + "@whole";
    if (stage_ == 3) name += std::to_string(count_++);
    const ValueId whole =
        add_whole(graph_, parameter, stage_ < 3 ? Role::kEncoded : Role::kActivation, std::move(name));
    graph_.set_phase(stage_ < 3 ? Phase::kEncode : Phase::kForward);
    graph_.set_layer(reader.layer);
    graph_.set_chunk(reader.chunk);
    add_into<Reshard>(graph_, {.x = {parameter}}, {.moved = {whole}},
                      {.axis = Axis::kShard, .from = Placement::sharded(0), .to = {}});
    if (shares) made_[key] = whole;
    return whole;
  }

  Graph& graph_;
  int stage_;
  int64_t count_ = 0;
  std::map<std::pair<ValueId, int32_t>, ValueId> made_;
};

}  // namespace

void shard_parameters(Graph& graph, int stage, const PaddingOf& padding_of) {
  if (!is_on(graph, stage)) return;
  std::vector<bool> is_sharded(static_cast<size_t>(graph.value_count()), false);
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.is_weight()) continue;  // a few numbers, and no optimizer's
    Value& value = graph.value(parameter.value);
    if (value.placements[Axis::kShard].kind == Placement::Kind::kSharded) continue;  // experts
    value.placements.set(Axis::kShard, Placement::sharded(0));
    value.sharding.padding.axis = Axis::kShard;  // by which it knows this cut from others
    Padding padding = padding_of(parameter);
    padding.axis = Axis::kShard;
    padding.uneven = value.sharding.padding.uneven;
    value.sharding.padding = std::move(padding);
    is_sharded[static_cast<size_t>(parameter.value)] = true;
  }
  Gatherer(graph, stage).run(is_sharded);
}

void scatter_gradients(Graph& graph, int stage) {
  if (!is_on(graph, stage) || stage < 2) return;
  // By the gradient that the nodes write: the accumulator in shards.
  std::map<ValueId, ValueId> shard_of;
  for (Parameter& parameter : graph.parameters()) {
    const Value& weight = graph.value(parameter.value);
    if (weight.sharding.padding.axis != Axis::kShard || !parameter.is_trained()) continue;
    const ValueId terms = parameter.gradient;
    Value shard = graph.value(terms);
    shard.placements.set(Axis::kShard, Placement::sharded(0));
    shard.sharding.padding = weight.sharding.padding;
    graph.value(terms).name += "@terms";
    graph.value(terms).role = Role::kTerms;
    parameter.gradient = shard_of[terms] = graph.add_value(std::move(shard));
  }
  std::map<ValueId, size_t> last_writer;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId output : graph.nodes()[i].outputs) {
      if (shard_of.contains(output)) last_writer[output] = i;
    }
  }
  std::multimap<size_t, ValueId> terms_after;
  for (const auto& [terms, writer] : last_writer) terms_after.emplace(writer, terms);
  std::vector<Node> old = std::move(graph.nodes());
  graph.nodes().clear();
  for (size_t i = 0; i < old.size(); ++i) {
    const int32_t layer = old[i].layer, chunk = old[i].chunk;
    graph.nodes().push_back(std::move(old[i]));
    const auto [begin, end] = terms_after.equal_range(i);
    for (auto it = begin; it != end; ++it) {
      graph.set_phase(Phase::kWeightGrad);
      graph.set_layer(layer);
      graph.set_chunk(chunk);
      add_into<Reshard>(graph, {.x = {it->second}}, {.moved = {shard_of.at(it->second)}},
                        {.axis = Axis::kShard, .from = Placement::partial(), .to = Placement::sharded(0)});
    }
  }
  graph.set_phase(Phase::kForward);
  graph.set_layer(kNone);
  graph.set_chunk(0);
}

bool is_gather(const Graph& graph, const Node& node) {
  return node.op == &Reshard::def && graph.value(node.outputs.front()).sharding.whole_of != kNone;
}

ValueId gather_again(Graph& graph, const Node& node) {
  Value again = graph.value(node.outputs.front());
  again.name += "'";
  again.producer = kNone;
  const ValueId id = graph.add_value(std::move(again));
  graph.add_node_into(Reshard::def, node.inputs, {id}, node.attrs);
  return id;
}

}  // namespace strata::graph
