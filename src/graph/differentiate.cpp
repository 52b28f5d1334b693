#include "graph/differentiate.h"

#include "base/error.h"
#include "graph/op.h"
#include "graph/sum.h"

namespace strata::graph {

GradientBuilder::GradientBuilder(Graph& graph)
    : graph_(graph),
      gradients_(static_cast<size_t>(graph.value_count()), kNone),
      parameters_(static_cast<size_t>(graph.value_count()), kNone) {
  for (size_t i = 0; i < graph.parameters().size(); ++i)
    parameters_[static_cast<size_t>(graph.parameters()[i].value)] = static_cast<int32_t>(i);
}

bool GradientBuilder::wants(ValueId forward) const {
  const Role role = graph_.value(forward).role;
  return role == Role::kActivation || role == Role::kParameter;
}

void GradientBuilder::add_gradient(ValueId forward, ValueId gradient) {
  STRATA_CHECK(graph_.value(forward).shape == graph_.value(gradient).shape,
               "the gradient of {} has another shape", graph_.value(forward).name);
  ValueId& slot = gradients_[static_cast<size_t>(forward)];
  slot = slot == kNone ? gradient : add_sum(graph_, slot, gradient);
}

ValueId GradientBuilder::take_gradient(ValueId forward) {
  return std::exchange(gradients_[static_cast<size_t>(forward)], kNone);
}

ValueId GradientBuilder::parameter_gradient(ValueId parameter) {
  const Value& weight = graph_.value(parameter);
  const int32_t index = parameters_[static_cast<size_t>(parameter)];
  STRATA_CHECK(index != kNone, "{} is no parameter", weight.name);
  Parameter& entry = graph_.parameters()[static_cast<size_t>(index)];
  if (entry.gradient == kNone) {
    entry.gradient = graph_.add_value({.name = "grad." + weight.name,
                                       .shape = weight.shape,
                                       .role = Role::kGradient,
                                       .encoding = {},
                                       .placements = weight.placements,
                                       .segments = weight.segments});
  }
  return entry.gradient;
}

void differentiate(Graph& graph) {
  STRATA_CHECK(!graph.nodes().empty(), "nothing to differentiate");
  GradientBuilder builder(graph);
  const auto forward_count = graph.nodes().size();
  for (size_t i = forward_count; i-- > 0;) {
    const Node node = graph.nodes()[i];  // a copy: the rule appends to the nodes
    if (node.op->gradient == nullptr) continue;
    graph.set_layer(node.layer);
    builder.input_grad();
    if (i + 1 == forward_count) {
      node.op->gradient(builder, node);
      continue;
    }
    bool flows = false;
    for (const ValueId output : node.outputs)
      flows = flows || (output != kNone && builder.gradient_of(output) != kNone);
    if (flows) node.op->gradient(builder, node);
  }
  graph.nodes().erase(graph.nodes().begin() + static_cast<std::ptrdiff_t>(forward_count) - 1);
  for (Parameter& parameter : graph.parameters()) {
    STRATA_CHECK(parameter.gradient != kNone, "no gradient reaches {}", graph.value(parameter.value).name);
  }
  graph.set_layer(kNone);
  graph.set_phase(Phase::kForward);
}

}  // namespace strata::graph
