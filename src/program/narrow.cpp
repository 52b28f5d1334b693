#include "program/narrow.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "device/encode.h"
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
class NarrowGathers {
 public:
  NarrowGathers(Graph& graph, std::vector<bool>& narrow) : graph_(graph), narrow_(narrow) {}

  void run() {
    const std::vector<bool> is_rounded = only_rounded();
    for (Node& node : graph_.nodes()) {
      if (!graph::is_gather(graph_, node) || node.inputs.size() != 1) continue;
      const ValueId whole = node.outputs.front(), shard = node.inputs.front();
      if (graph_.value(shard).role != graph::Role::kParameter || graph_.value(shard).dtype != DType::kF32 ||
          !is_rounded[static_cast<size_t>(whole)])
        continue;
      node.inputs.front() = copy_of(shard);
      Value& value = graph_.value(whole);
      value.dtype = DType::kBF16;
      // Another program, one of whose readers does not round, may keep the weight in fp32.
      value.name += "@bf16";
      narrow_[static_cast<size_t>(whole)] = true;
    }
    narrow_.resize(static_cast<size_t>(graph_.value_count()), false);
    read_without_copies();
    make_copies();
  }

 private:
  std::vector<bool> only_rounded() const {
    std::vector<bool> out(static_cast<size_t>(graph_.value_count()), true);
    for (const Node& node : graph_.nodes()) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && !rounds_to_bf16(graph_, node, i))
          out[static_cast<size_t>(node.inputs[i])] = false;
      }
    }
    return out;
  }

  ValueId copy_of(ValueId shard) {
    const auto [copy, is_new] = copies_.try_emplace(shard, kNone);
    if (!is_new) return copy->second;
    Value value = graph_.value(shard);
    value.name += "@bf16";
    value.dtype = DType::kBF16;
    value.role = graph::Role::kEncoded;
    return copy->second = graph_.add_value(std::move(value));
  }

  // Matmuls that want a weight in bf16 in the order of its elements read the gathered one.
  void read_without_copies() {
    std::map<ValueId, ValueId> gathered;  // by the copy
    const auto is_copy = [&](const Node& node) {
      if (node.op != &ops::PackWeight::def || !narrow_[static_cast<size_t>(node.inputs.front())])
        return false;
      const Value& whole = graph_.value(node.inputs.front());
      return whole.sharding.whole_of != kNone &&
             graph_.value(node.outputs.front()).encoding.layout == device::kPlainBf16;
    };
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    for (Node& node : old) {
      if (is_copy(node)) {
        gathered[node.outputs.front()] = node.inputs.front();
        graph_.value(node.inputs.front()).encoding = graph_.value(node.outputs.front()).encoding;
        narrow_[static_cast<size_t>(node.inputs.front())] = false;  // no reader needs another copy
      } else {
        graph_.nodes().push_back(std::move(node));
      }
    }
    for (Node& node : graph_.nodes()) {
      for (ValueId& input : node.inputs) {
        if (const auto found = gathered.find(input); found != gathered.end()) input = found->second;
      }
    }
  }

  // Before what each update gathers.
  void make_copies() {
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    const auto first = std::find_if(old.begin(), old.end(),
                                    [](const Node& node) { return node.phase == graph::Phase::kEncode; });
    std::move(old.begin(), first, std::back_inserter(graph_.nodes()));
    graph_.set_phase(graph::Phase::kEncode);
    graph_.set_layer(kNone);
    graph_.set_chunk(0);
    for (const auto& [shard, copy] : copies_)
      graph::add_into<ops::Cast>(graph_, {.x = shard}, {.cast = copy}, {DType::kBF16});
    graph_.set_phase(graph::Phase::kForward);
    std::move(first, old.end(), std::back_inserter(graph_.nodes()));
  }

  Graph& graph_;
  std::vector<bool>& narrow_;
  std::map<ValueId, ValueId> copies_;  // of shards
};

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
  if (gathers) NarrowGathers(graph, narrow).run();
  for (const bool one : narrow) {
    if (one) return Widener(graph).run(narrow);
  }
}

}  // namespace strata::program
