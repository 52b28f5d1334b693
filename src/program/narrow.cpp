#include "program/narrow.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "graph/reshard.h"
#include "ops/embedding/embedding.h"
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
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueId whole_of = graph.value(id).sharding.whole_of;
    if (whole_of != kNone && narrow[static_cast<size_t>(whole_of)]) narrow[static_cast<size_t>(id)] = true;
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

}  // namespace

DType stored_dtype(const Graph& graph, const graph::Parameter& parameter, const optim::RuleOf& rule_of) {
  if (rule_of == nullptr || !parameter.is_trained()) return DType::kF32;
  const std::string& name = parameter.part.of.empty() ? graph.value(parameter.value).name : parameter.part.of;
  return rule_of(name, parameter.role).tensors.front().rule.storage.weights;
}

void narrow_values(Graph& graph, const optim::RuleOf& rule_of) {
  narrowed(graph, rule_of);
}

void narrow_pass(Graph& graph, const optim::RuleOf& rule_of) {
  const std::vector<bool> narrow = narrowed(graph, rule_of);
  for (const bool one : narrow) {
    if (one) return Widener(graph).run(narrow);
  }
}

}  // namespace strata::program
