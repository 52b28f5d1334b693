#include "program/expert_passes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/expert_dispatch/expert_dispatch.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using ops::PlanDispatch;

size_t at(ValueId id) {
  return static_cast<size_t>(id);
}

// Whether a node's result no longer consists of rows of a pass.
bool leaves_pass(const Graph& graph, const Node& node) {
  if (node.op == &ops::CombineRows::def || node.op == &ops::CombineSlotGrads::def ||
      node.op == &ops::RemainingTokens::def)
    return true;
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
    return output != kNone && graph.value(output).role != graph::Role::kActivation;
  });
}

bool is_of_backward(Phase phase) {
  return phase == Phase::kRecompute || phase == Phase::kInputGrad || phase == Phase::kWeightGrad;
}

bool overflows(const Node& node) {
  return node.op == &PlanDispatch::def && !node.attrs.as<ops::DispatchAttrs>().takes_any_routing();
}

// By value: the node that plans the pass whose rows it holds; kNone: it holds none.
template <typename IsPlan>
std::vector<int32_t> plans_of_values(const Graph& graph, const std::vector<Node>& nodes,
                                     const IsPlan& is_plan) {
  std::vector<int32_t> plans(at(graph.value_count()), kNone);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    int32_t plan = is_plan(node) ? static_cast<int32_t>(i) : kNone;
    for (const ValueId input : node.inputs) {
      if (input != kNone && plan == kNone) plan = plans[at(input)];
    }
    if (plan == kNone || leaves_pass(graph, node)) continue;
    for (const ValueId output : node.outputs) {
      if (output != kNone) plans[at(output)] = plan;
    }
  }
  return plans;
}

class LoopAdder {
 public:
  LoopAdder(Graph& graph, PassesOf nodes, Backward backward)
      : graph_(graph), of_(nodes), backward_(backward), old_(std::move(graph.nodes())) {
    graph_.nodes().clear();
    plans_ = plans_of_values(graph_, old_, overflows);
    makers_.resize(at(graph_.value_count()), kNone);
    for (size_t i = 0; i < old_.size(); ++i) {
      for (const ValueId output : old_[i].outputs) {
        if (output != kNone && makers_[at(output)] == kNone) makers_[at(output)] = static_cast<int32_t>(i);
      }
    }
  }

  void run() {
    std::map<Key, std::vector<size_t>> to_come;  // nodes that leave a pass
    std::vector<std::optional<Key>> keys(old_.size());
    for (size_t i = 0; i < old_.size(); ++i) {
      keys[i] = key_of(old_[i]);
      if (keys[i]) to_come[*keys[i]].push_back(i);
    }
    std::vector<bool> is_placed(old_.size(), false);
    const auto place = [&](size_t i) {
      graph_.nodes().push_back(old_[i]);
      is_placed[i] = true;
      if (!keys[i]) return;
      std::erase(to_come[*keys[i]], i);
      open_[*keys[i]].push_back(i);
    };
    for (size_t i = 0; i < old_.size(); ++i) {
      if (is_placed[i]) continue;
      // All readers of a result read it whole. Nodes that can already leave the pass share its loop.
      std::erase_if(open_, [&](auto& entry) {
        const bool is_read = std::any_of(entry.second.begin(), entry.second.end(),
                                         [&](size_t leaver) { return reads(old_[i], old_[leaver]); });
        if (!is_read) return false;
        for (const size_t later : std::vector<size_t>(to_come[entry.first])) {
          if (can_stand_before(i, later)) place(later);
        }
        add_loop(entry.second);
        return true;
      });
      place(i);
      if (!keys[i] || !to_come[*keys[i]].empty()) continue;
      add_loop(open_[*keys[i]]);
      open_.erase(*keys[i]);
    }
  }

 private:
  // Leavers with equal keys share a loop: they have one plan, and their nodes are in one list.
  struct Key {
    int32_t plan;
    int list;
    auto operator<=>(const Key&) const = default;
  };

  std::optional<Key> key_of(const Node& node) const {
    const bool is_backward = node.phase == Phase::kInputGrad || node.phase == Phase::kWeightGrad;
    const bool is_forward = node.phase == Phase::kForward || node.phase == Phase::kRecompute;
    if (of_ == PassesOf::kBackward ? !is_backward : !is_forward) return std::nullopt;
    if (node.loop != kNone || !leaves_pass(graph_, node)) return std::nullopt;
    const int32_t plan = plan_read_by(node);
    if (plan == kNone) return std::nullopt;
    const bool by_weight = node.phase == Phase::kWeightGrad && backward_ == Backward::kSplit;
    return Key{plan, node.phase == Phase::kRecompute ? 2 : by_weight ? 1 : 0};
  }
  int32_t plan_read_by(const Node& node) const {
    for (const ValueId input : node.inputs) {
      if (input != kNone && at(input) < plans_.size() && plans_[at(input)] != kNone) return plans_[at(input)];
    }
    return kNone;
  }
  static bool reads(const Node& reader, const Node& maker) {
    return std::any_of(maker.outputs.begin(), maker.outputs.end(), [&](ValueId output) {
      return output != kNone &&
             std::find(reader.inputs.begin(), reader.inputs.end(), output) != reader.inputs.end();
    });
  }

  // Whether all that a node reads is there before node `place`. Accumulators keep the order of their terms.
  bool can_stand_before(size_t place, size_t node) const {
    const bool accumulates =
        std::any_of(old_[node].outputs.begin(), old_[node].outputs.end(), [&](ValueId output) {
          return output != kNone && graph_.value(output).role != graph::Role::kActivation;
        });
    return !accumulates &&
           std::all_of(old_[node].inputs.begin(), old_[node].inputs.end(), [&](ValueId input) {
             return input == kNone || at(input) >= makers_.size() || makers_[at(input)] == kNone ||
                    static_cast<size_t>(makers_[at(input)]) < place;
           });
  }

  // What `leavers` need of a pass, in order.
  std::vector<size_t> needed_by(const std::vector<size_t>& leavers) const {
    std::vector<bool> needed(old_.size(), false);
    size_t i = 0;
    for (const size_t leaver : leavers) {
      needed[leaver] = true;
      i = std::max(i, leaver + 1);
    }
    while (i-- > 0) {
      if (!needed[i]) continue;
      for (const ValueId input : old_[i].inputs) {
        if (input != kNone && plans_[at(input)] != kNone) needed[at(makers_[at(input)])] = true;
      }
    }
    std::vector<size_t> list;
    for (size_t n = 0; n < needed.size(); ++n) {
      if (needed[n]) list.push_back(n);
    }
    return list;
  }

  void add_loop(const std::vector<size_t>& leavers) {
    const Node& first = old_[leavers.front()];
    const std::vector<size_t> needed = needed_by(leavers);
    const auto plan = static_cast<size_t>(plan_read_by(first));
    graph_.set_phase(first.phase);
    graph_.set_layer(first.layer);
    graph_.set_chunk(first.chunk);
    const ValueId way = graph::outputs_of<PlanDispatch>(old_[plan]).way;
    const ValueId remaining =
        graph::add<ops::RemainingTokens>(graph_, {.way = way}, old_[plan].attrs.as<ops::DispatchAttrs>())
            .next;
    const int32_t loop = graph_.add_loop(remaining);
    std::map<ValueId, ValueId> own;  // of the loop, in the place of the first pass's
    for (const size_t n : needed) {
      STRATA_CHECK(old_[n].op != &PlanDispatch::def || n == plan, "a pass with rows of two plans");
      Node node = old_[n];
      for (ValueId& input : node.inputs) {
        if (const auto found = own.find(input); found != own.end()) input = found->second;
      }
      if (leaves_pass(graph_, node)) {
        add_others(node);
      } else {
        for (ValueId& output : node.outputs) {
          if (output != kNone) output = own[output] = like(output);
        }
        if (n == plan) set_begin(node, remaining);
        node.phase = first.phase;
      }
      node.chunk = first.chunk;
      node.loop = loop;
      graph_.nodes().push_back(std::move(node));
    }
    graph_.set_phase(Phase::kForward);
    graph_.set_layer(kNone);
    graph_.set_chunk(0);
  }

  ValueId like(ValueId value) {
    Value copy = graph_.value(value);
    copy.name += ".of_later_pass";
    copy.producer = static_cast<graph::NodeId>(graph_.nodes().size());
    return graph_.add_value(std::move(copy));
  }
  static void set_begin(Node& node, ValueId remaining) {
    auto in = graph::inputs_of<PlanDispatch>(node);
    auto out = graph::outputs_of<PlanDispatch>(node);
    in.begin = out.next = remaining;
    graph::set_inputs<PlanDispatch>(node, in);
    graph::set_outputs<PlanDispatch>(node, out);
  }
  // The result is that of the first pass, whose tokens stay.
  static void add_others(Node& node) {
    if (node.op == &ops::CombineRows::def) {
      auto in = graph::inputs_of<ops::CombineRows>(node);
      in.others = graph::outputs_of<ops::CombineRows>(node).y;
      graph::set_inputs<ops::CombineRows>(node, in);
    } else if (node.op == &ops::CombineSlotGrads::def) {
      auto in = graph::inputs_of<ops::CombineSlotGrads>(node);
      in.others = graph::outputs_of<ops::CombineSlotGrads>(node).dweights;
      graph::set_inputs<ops::CombineSlotGrads>(node, in);
    }
  }

  Graph& graph_;
  const PassesOf of_;
  const Backward backward_;
  const std::vector<Node> old_;
  std::vector<int32_t> plans_;   // by value
  std::vector<int32_t> makers_;  // by value, the node that wrote it first
  std::map<Key, std::vector<size_t>> open_;
};

}  // namespace

std::vector<bool> values_of_passes(const Graph& graph) {
  const auto plans =
      plans_of_values(graph, graph.nodes(), [](const Node& node) { return node.op == &PlanDispatch::def; });
  std::vector<bool> of_passes;
  for (const int32_t plan : plans) of_passes.push_back(plan != kNone);
  return of_passes;
}

void dispatch_early_pass(Graph& graph) {
  std::vector<Node>& nodes = graph.nodes();
  for (size_t i = 1; i < nodes.size(); ++i) {
    const Node node = nodes[i];
    if (node.op != &ops::DispatchRows::def || node.loop != kNone) continue;
    // The nodes that precede it in its list, back to those that produce its inputs.
    const auto may_follow = [&](const Node& other) {
      return other.layer == node.layer && other.chunk == node.chunk && other.loop == kNone &&
             (other.phase == node.phase ||
              (node.phase == Phase::kInputGrad && is_of_backward(other.phase))) &&
             std::none_of(other.outputs.begin(), other.outputs.end(), [&](ValueId output) {
               return output != kNone &&
                      std::find(node.inputs.begin(), node.inputs.end(), output) != node.inputs.end();
             });
    };
    size_t to = i;
    while (to > 0 && may_follow(nodes[to - 1])) --to;
    std::rotate(nodes.begin() + static_cast<std::ptrdiff_t>(to),
                nodes.begin() + static_cast<std::ptrdiff_t>(i),
                nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

void add_expert_passes(Graph& graph, PassesOf nodes, Backward backward) {
  if (std::any_of(graph.nodes().begin(), graph.nodes().end(), overflows))
    LoopAdder(graph, nodes, backward).run();
}

}  // namespace strata::program
