#include "program/narrow.h"

#include <fmt/core.h>

#include <map>
#include <utility>
#include <vector>

#include "graph/reshard.h"
#include "graph/zero.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/router/router.h"
#include "optim/stored/stored.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Value;
using graph::ValueId;

// The values in bf16, by id.
std::vector<bool> narrowed(Graph& graph, const optim::RuleOf& rule_of) {
  std::vector<bool> narrow(static_cast<size_t>(graph.value_count()), false);
  for (const graph::Parameter& parameter : graph.parameters())
    narrow[static_cast<size_t>(parameter.value)] = stored_dtype(graph, parameter, rule_of) == DType::kBF16;
  // Copies of weights that ranks put together; codes and scales keep their types.
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; graph::is_gather(graph, node) && i < node.outputs.size(); ++i) {
      if (node.inputs[i] == graph.value(node.outputs[i]).sharding.whole_of &&
          narrow[static_cast<size_t>(node.inputs[i])])
        narrow[static_cast<size_t>(node.outputs[i])] = true;
    }
  }
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (narrow[static_cast<size_t>(id)]) graph.value(id).dtype = DType::kBF16;
  }
  return narrow;
}

bool takes_bf16(const Node& node, size_t input) {
  if (node.op == &ops::Embedding::def)
    return static_cast<int>(input) == graph::position_of<ops::Embedding::In>("table");
  return node.op == &optim::StoredUpdate::def || node.op == &graph::Reshard::def;
}

class Widener {
 public:
  explicit Widener(Graph& graph) : graph_(graph) {}

  void run(const std::vector<bool>& narrow) {
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    for (Node& node : old) {
      ValueId last = kNone, last_wide = kNone;  // a loss reads its weight twice
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        ValueId& input = node.inputs[i];
        if (input == kNone || !narrow[static_cast<size_t>(input)] || takes_bf16(node, i)) continue;
        if (input != last) {
          last = input;
          last_wide = widened(input, node);
        }
        input = last_wide;
      }
      graph_.nodes().push_back(std::move(node));
    }
    graph_.set_phase(graph::Phase::kForward);
    graph_.set_layer(kNone);
    graph_.set_chunk(0);
  }

 private:
  // In fp32, for one node, before it.
  ValueId widened(ValueId id, const Node& reader) {
    const Value& stored = graph_.value(id);
    Value wide;
    wide.name = fmt::format("{}@wide{}", stored.name, count_++);
    wide.shape = stored.shape;
    wide.placements = stored.placements;
    wide.segments = stored.segments;
    wide.segments_along = stored.segments_along;
    wide.sharding.global_shape = stored.sharding.global_shape;
    wide.sharding.global_segments = stored.sharding.global_segments;
    const ValueId to = graph_.add_value(std::move(wide));
    graph_.set_phase(reader.phase);
    graph_.set_layer(reader.layer);
    graph_.set_chunk(reader.chunk);
    graph::add_into<ops::Cast>(graph_, {.x = id}, {.cast = to}, {DType::kF32});
    graph_.nodes().back().loop = reader.loop;
    return to;
  }

  Graph& graph_;
  int64_t count_ = 0;
};

// Whether the node uses nothing of this input but its values in bf16.
bool rounds_to_bf16(const Graph& graph, const Node& node, size_t input) {
  const auto activations_are_bf16 = [&](size_t at) {
    return graph.value(node.inputs[at]).dtype == DType::kBF16;
  };
  if (node.op == &ops::PackWeight::def) return graph.value(node.outputs.front()).dtype == DType::kBF16;
  if (node.op == &ops::Linear::def || node.op == &ops::LinearGradInput::def ||
      node.op == &ops::LinearCrossEntropy::def || node.op == &ops::LinearCrossEntropyTrain::def)
    return input == 1 && activations_are_bf16(0);
  if (node.op != &ops::Embedding::def ||
      static_cast<int>(input) != graph::position_of<ops::Embedding::In>("table"))
    return false;
  const auto& attrs = node.attrs.as<ops::EmbeddingAttrs>();
  return attrs.dtype == DType::kBF16 && attrs.scale == 1 &&
         graph::inputs_of<ops::Embedding>(node).position_table == kNone;
}

// Sends bf16 copies of shards in place of weights that are only read rounded.
void narrow_gathers(Graph& graph, std::vector<bool>& narrow) {
  std::vector<bool> is_rounded(static_cast<size_t>(graph.value_count()), true);
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && !rounds_to_bf16(graph, node, i))
        is_rounded[static_cast<size_t>(node.inputs[i])] = false;
    }
  }
  std::map<ValueId, ValueId> copies;  // of shards
  std::vector<ValueId> order;
  for (Node& node : graph.nodes()) {
    if (!graph::is_gather(graph, node) || node.inputs.size() != 1) continue;
    const ValueId whole = node.outputs.front(), shard = node.inputs.front();
    if (graph.value(whole).role != graph::Role::kActivation ||
        graph.value(shard).role != graph::Role::kParameter || graph.value(shard).dtype != DType::kF32 ||
        !is_rounded[static_cast<size_t>(whole)])
      continue;
    const auto [copy, is_new] = copies.try_emplace(shard, kNone);
    if (is_new) {
      Value value = graph.value(shard);
      value.name += "@bf16";
      value.dtype = DType::kBF16;
      value.role = graph::Role::kEncoded;
      copy->second = graph.add_value(std::move(value));
      order.push_back(shard);
    }
    node.inputs.front() = copy->second;
    graph.value(whole).dtype = DType::kBF16;
    narrow[static_cast<size_t>(whole)] = true;
  }
  narrow.resize(static_cast<size_t>(graph.value_count()), false);
  graph.set_phase(graph::Phase::kEncode);
  graph.set_layer(kNone);
  graph.set_chunk(0);
  for (const ValueId shard : order)
    graph::add_into<ops::Cast>(graph, {.x = shard}, {.cast = copies.at(shard)}, {DType::kBF16});
  graph.set_phase(graph::Phase::kForward);
}

}  // namespace

DType stored_dtype(const Graph& graph, const graph::Parameter& parameter, const optim::RuleOf& rule_of) {
  if (rule_of == nullptr || !parameter.is_weight()) return DType::kF32;
  const std::string& name = parameter.part.of.empty() ? graph.value(parameter.value).name : parameter.part.of;
  return rule_of(name, parameter.role).tensors.front().rule.storage.weights;
}

void narrow_values(Graph& graph, const optim::RuleOf& rule_of) {
  narrowed(graph, rule_of);
}

void narrow_pass(Graph& graph, const optim::RuleOf& rule_of, bool gathers) {
  std::vector<bool> narrow = narrowed(graph, rule_of);
  if (gathers) narrow_gathers(graph, narrow);
  for (const bool one : narrow) {
    if (one) return Widener(graph).run(narrow);
  }
}

}  // namespace strata::program
