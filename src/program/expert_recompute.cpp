#include "program/expert_recompute.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/expert_parallel/expert_parallel.h"

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using ops::ExpertBody;
using ops::ExpertParallelAttrs;

namespace {

// Which values of forward a node makes again.
void note_original(const Node& node, ExpertBody& body) {
  std::vector<ValueId> reads = node.inputs;
  for (ValueId& value : reads) {
    if (const auto was = body.again.find(value); was != body.again.end()) value = was->second;
  }
  for (const Node& one : body.graph.nodes()) {
    if (one.phase != Phase::kForward || one.op != node.op || one.inputs != reads || one.attrs != node.attrs)
      continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone && one.outputs[i] != kNone) body.again[node.outputs[i]] = one.outputs[i];
    }
    return;
  }
}

// The same body, whose backward makes again what a cheap kernel makes.
std::shared_ptr<const ExpertBody> recomputing(const ExpertBody& body) {
  auto again = std::make_shared<ExpertBody>(body);
  Graph& graph = again->graph;
  for (Node& node : graph.nodes()) node.layer = 0;
  // Nobody inside reads them.
  const ValueId given[] = {body.result, body.rows_grad, body.weights_grad};
  for (const ValueId value : given) graph.value(value).passage = graph::Value::Passage::kSent;
  recompute_pass(graph, [](int32_t) { return Recompute::kSelective; });
  for (const ValueId value : given) graph.value(value).passage = graph::Value::Passage::kStays;
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kRecompute) note_original(node, *again);
  }
  // With I what I needs, with W the rest.
  std::vector<bool> wanted(static_cast<size_t>(graph.value_count()));
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (node->phase == Phase::kRecompute) {
      const bool early = std::any_of(node->outputs.begin(), node->outputs.end(), [&](ValueId output) {
        return output != kNone && wanted[static_cast<size_t>(output)];
      });
      node->phase = early ? Phase::kInputGrad : Phase::kWeightGrad;
    }
    if (node->phase != Phase::kInputGrad) continue;
    for (const ValueId input : node->inputs)
      if (input != kNone) wanted[static_cast<size_t>(input)] = true;
  }
  ops::list_values(*again);
  return again;
}

// Of a layer's experts: the new body, and where its values lie in the program's graph.
struct Layer {
  std::shared_ptr<const ExpertBody> before, body;
  std::map<ValueId, ValueId> at;

  std::vector<ValueId> values(const std::vector<ValueId>& of_body) const {
    std::vector<ValueId> values;
    for (const ValueId value : of_body) {
      const auto found = at.find(value);
      STRATA_CHECK(found != at.end(), "backward of experts reads {}, which forward does not keep",
                   body->graph.value(value).name);
      values.push_back(found->second);
    }
    return values;
  }
};

void append(std::vector<ValueId>& to, const std::vector<ValueId>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Notes where values of the body lie.
void note(Layer& layer, const std::vector<ValueId>& of_body, const std::vector<ValueId>& values) {
  for (size_t i = 0; i < of_body.size(); ++i) layer.at[of_body[i]] = values[i];
}

void rewrite_forward(Node& node, Layer& layer) {
  using Op = ops::ExpertParallel;
  auto out = graph::outputs_of<Op>(node);
  note(layer, layer.before->kept, out.kept);
  out.kept = layer.values(layer.body->kept);
  graph::set_outputs<Op>(node, out);
}

void rewrite_grad_input(Graph& graph, NodeId id, Layer& layer) {
  using Op = ops::ExpertParallelGradInput;
  Node& node = graph.nodes()[static_cast<size_t>(id)];
  auto in = graph::inputs_of<Op>(node);
  in.of_body.resize(layer.body->inputs.parameters.size());
  append(in.of_body, layer.values(layer.body->kept));
  graph::set_inputs<Op>(node, in);
  auto out = graph::outputs_of<Op>(node);
  note(layer, layer.before->handed, out.handed);
  out.handed.clear();
  const auto specs = node.op->infer({graph, node});
  for (size_t i = 0; i < layer.body->handed.size(); ++i) {
    const auto [found, is_new] = layer.at.try_emplace(layer.body->handed[i], kNone);
    if (is_new) {
      // It lies as everything does that has a row a slot.
      const graph::ValueSpec& spec = specs[graph::position_of<Op::Out>("handed") + i];
      Value value;
      value.name = fmt::format("{}.{}", graph.value(out.dx).name, spec.suffix);
      value.dtype = spec.dtype;
      value.shape = spec.shape;
      value.placements = graph.value(layer.at.at(layer.body->inputs.offsets)).placements;
      value.segments = spec.segments;
      value.segments_along = spec.segments_along;
      value.producer = id;
      found->second = graph.add_value(std::move(value));
    }
    out.handed.push_back(found->second);
  }
  graph::set_outputs<Op>(node, out);
}

void rewrite_grad_weight(Node& node, const Layer& layer) {
  using Op = ops::ExpertParallelGradWeight;
  auto in = graph::inputs_of<Op>(node);
  in.of_body.resize(layer.body->inputs.parameters.size());
  append(in.of_body, layer.values(layer.body->kept_for_weights));
  append(in.of_body, layer.values(layer.body->handed));
  graph::set_inputs<Op>(node, in);
}

}  // namespace

void recompute_in_experts(Graph& graph, const std::function<Recompute(int32_t)>& of_layer) {
  std::map<std::string, std::shared_ptr<const ExpertBody>> bodies;  // by key
  std::map<ValueId, Layer> layers;                                  // by where their second rounds begin
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Node& node = graph.nodes()[i];
    const bool is_forward = node.op == &ops::ExpertParallel::def;
    const bool is_input = node.op == &ops::ExpertParallelGradInput::def;
    if (!is_forward && !is_input && node.op != &ops::ExpertParallelGradWeight::def) continue;
    auto attrs = node.attrs.as<ExpertParallelAttrs>();
    if (is_forward) {
      if (!attrs.body->trains() || of_layer(node.layer) == Recompute::kNone) continue;
      auto& body = bodies[attrs.body->key];
      if (body == nullptr) body = recomputing(*attrs.body);
      layers[graph::outputs_of<ops::ExpertParallel>(node).end] = {attrs.body, body, {}};
    }
    const auto layer = layers.find(is_forward ? graph::outputs_of<ops::ExpertParallel>(node).end
                                              : graph::inputs_of<ops::ExpertParallelGradInput>(node).end);
    if (layer == layers.end()) continue;
    attrs.body = layer->second.body;
    node.attrs = attrs;
    if (is_forward) {
      rewrite_forward(node, layer->second);
    } else if (is_input) {
      rewrite_grad_input(graph, static_cast<NodeId>(i), layer->second);
    } else {
      rewrite_grad_weight(node, layer->second);
    }
  }
}

}  // namespace strata::program
