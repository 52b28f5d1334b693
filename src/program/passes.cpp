#include "program/passes.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/zero.h"

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;

std::string_view name_of(Recompute recompute) {
  static constexpr std::string_view kNames[] = {"none", "selective", "full"};
  return kNames[static_cast<size_t>(recompute)];
}

void renumber_producers(Graph& graph) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId output : graph.nodes()[i].outputs) {
      if (output != kNone && graph::is_temporary(graph.value(output).role)) {
        graph.value(output).producer = static_cast<NodeId>(i);
      }
    }
  }
}

namespace {

// What an accumulator holds is something else later.
bool reads_accumulator(const Graph& graph, const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input != kNone && graph.value(input).role == Role::kMetric;
  });
}

bool is_backward(const Node& node) {
  return node.phase == Phase::kInputGrad || node.phase == Phase::kWeightGrad;
}

// Makes forward values again at the point where backward first wants them.
class Recomputer {
 public:
  Recomputer(Graph& graph, const std::vector<Node>& forward,
             const std::function<Recompute(int32_t)>& of_layer, bool gathers_again)
      : graph_(graph), of_layer_(of_layer), gathers_again_(gathers_again) {
    for (const Node& node : forward) {
      if (node.phase != Phase::kForward) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNone) sources_[node.outputs[i]] = {&node, static_cast<int>(i)};
      }
    }
  }

  // The value that a backward node of the chunk should read in place of `value`. Another chunk's value is
  // saved: the backward of that chunk, which would recompute it, comes later.
  ValueId of(ValueId value, int32_t chunk) {
    if (value == kNone) return value;
    const auto source = sources_.find(value);
    if (source == sources_.end() || graph_.value(value).role != Role::kActivation) return value;
    const Node& node = *source->second.node;
    if (node.chunk != chunk) return value;
    if (const auto made = made_.find(value); made != made_.end()) return made->second;
    if (reads_accumulator(graph_, node)) return value;
    if (graph::is_gather(graph_, node)) {
      if (!gathers_again_) return value;
      mark(node);
      return made_[value] = graph::gather_again(graph_, node);
    }
    if (is_gather_of_stream(node)) {
      const ValueId rows = of(node.inputs.front(), chunk);
      mark(node);
      return made_[value] = graph_.add_node(*node.op, {rows}, node.attrs).front();
    }
    if (node.layer == kNone) return value;
    switch (of_layer_(node.layer)) {
      case Recompute::kNone:
        return value;
      case Recompute::kSelective:
        return selective(value, node, source->second.output);
      case Recompute::kFull:
        return full(value, node);
    }
    return value;
  }

 private:
  struct Source {
    const Node* node;
    int output;
  };

  // A gather of the residual stream's rows for a column-parallel matmul: a rank saves its own rows, and
  // weight gradients gather them again (Korthikanti et al. 2022).
  bool is_gather_of_stream(const Node& node) const {
    if (node.op != &graph::Reshard::def) return false;
    const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
    return attrs.axis == graph::Axis::kTensor && attrs.from == graph::Placement::sharded(0) &&
           attrs.to == graph::Placement::replicated();
  }

  ValueId selective(ValueId value, const Node& node, int output) {
    if (node.op->recompute == nullptr) return value;
    // From saved values, through other cheap kernels.
    Node reads = node;
    for (ValueId& input : reads.inputs) {
      const auto source = sources_.find(input);
      if (source != sources_.end() && source->second.node->op->recompute != nullptr &&
          source->second.node->layer == node.layer)
        input = of(input, node.chunk);
    }
    mark(node);
    const ValueId again = node.op->recompute(graph_, reads, output);
    return again == kNone ? value : made_[value] = again;
  }

  ValueId full(ValueId value, const Node& node) {
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& input : inputs) {
      const auto source = sources_.find(input);
      if (source != sources_.end() && source->second.node->layer == node.layer) input = of(input, node.chunk);
    }
    mark(node);
    const auto outputs = graph_.add_node(*node.op, inputs, node.attrs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNone) made_[node.outputs[i]] = outputs[i];
    }
    return made_.at(value);
  }

  void mark(const Node& node) {
    graph_.set_phase(Phase::kRecompute);
    graph_.set_layer(node.layer);
    graph_.set_chunk(node.chunk);
  }

  Graph& graph_;
  const std::function<Recompute(int32_t)>& of_layer_;
  bool gathers_again_;
  std::unordered_map<ValueId, Source> sources_;
  std::unordered_map<ValueId, ValueId> made_;
};

}  // namespace

void recompute_pass(Graph& graph, const std::function<Recompute(int32_t)>& of_layer, bool gathers_again) {
  const std::vector<Node> old = std::move(graph.nodes());
  graph.nodes().clear();
  Recomputer recomputer(graph, old, of_layer, gathers_again);
  for (size_t begin = 0, end; begin < old.size(); begin = end) {
    // Inputs of a loop are recomputed before the loop.
    end = begin + 1;
    while (old[begin].loop != kNone && end < old.size() && old[end].loop == old[begin].loop) ++end;
    std::vector<Node> rewritten(old.begin() + static_cast<std::ptrdiff_t>(begin),
                                old.begin() + static_cast<std::ptrdiff_t>(end));
    for (Node& node : rewritten) {
      if (!is_backward(node)) continue;
      for (ValueId& input : node.inputs) input = recomputer.of(input, node.chunk);
    }
    graph.nodes().insert(graph.nodes().end(), rewritten.begin(), rewritten.end());
  }
  graph.set_phase(Phase::kForward);
  graph.set_layer(kNone);
  graph.set_chunk(0);
  prune_pass(graph);
}

void prune_pass(Graph& graph) {
  std::vector<int32_t> readers(static_cast<size_t>(graph.value_count()), 0);
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) {
      if (input != kNone) ++readers[static_cast<size_t>(input)];
    }
  }
  std::vector<Node> kept;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    bool wanted = false;
    for (const ValueId output : node->outputs) {
      if (output == kNone) continue;
      wanted = wanted || graph.value(output).role != Role::kActivation ||
               graph.value(output).passage == graph::Value::Passage::kSent ||
               readers[static_cast<size_t>(output)] > 0;
    }
    if (wanted) {
      kept.push_back(std::move(*node));
      continue;
    }
    for (const ValueId input : node->inputs) {
      if (input != kNone) --readers[static_cast<size_t>(input)];
    }
  }
  graph.nodes().assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  renumber_producers(graph);
}

}  // namespace strata::program
