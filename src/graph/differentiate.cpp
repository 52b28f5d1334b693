#include "graph/differentiate.h"

#include <algorithm>

#include "base/error.h"
#include "graph/loss_seed.h"
#include "graph/sum.h"
#include "graph/typed_op.h"

namespace strata::graph {

GradientBuilder::GradientBuilder(Graph& graph)
    : graph_(graph),
      gradients_(static_cast<size_t>(graph.value_count()), kNone),
      parameters_(static_cast<size_t>(graph.value_count()), kNone) {
  for (size_t i = 0; i < graph.parameters().size(); ++i)
    parameters_[static_cast<size_t>(graph.parameters()[i].value)] = static_cast<int32_t>(i);
}

bool GradientBuilder::wants(ValueId forward) const {
  return graph_.value(forward).role == Role::kActivation || is_parameter(forward);
}

bool GradientBuilder::is_parameter(ValueId forward) const {
  const Value& value = graph_.value(forward);
  return value.role == Role::kParameter || value.sharding.whole_of != kNone;
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
  if (graph_.value(parameter).sharding.whole_of != kNone)
    parameter = graph_.value(parameter).sharding.whole_of;
  const Value& weight = graph_.value(parameter);
  const int32_t index = parameters_[static_cast<size_t>(parameter)];
  STRATA_CHECK(index != kNone, "{} is not a parameter", weight.name);
  Parameter& entry = graph_.parameters()[static_cast<size_t>(index)];
  if (entry.gradient == kNone) {
    entry.gradient = graph_.add_value({.name = "grad." + weight.name,
                                       .shape = weight.shape,
                                       .role = Role::kGradient,
                                       .encoding = {},
                                       .placements = {},
                                       .segments = weight.segments,
                                       .segments_along = weight.segments_along,
                                       .sharding = {.padding = {.uneven = weight.sharding.padding.uneven},
                                                    .distributed_axes = weight.sharding.distributed_axes}});
  }
  return entry.gradient;
}

namespace {

// Seeds the sums of all losses; without a scale those in terms of the main loss need none.
void add_seeds(GradientBuilder& builder, std::span<const WeightedLoss> losses, ValueId scale) {
  for (size_t i = 0; i < losses.size(); ++i) {
    if (i == 0 || losses[i].in_main_terms) {
      if (scale != kNone) builder.add_gradient(losses[i].sum, scale);
      continue;
    }
    STRATA_CHECK(losses[0].terms != kNone && losses[i].terms != kNone,
                 "several losses, and the terms of {} are not known",
                 builder.graph().value(losses[losses[0].terms == kNone ? 0 : i].sum).name);
    const auto maker =
        std::find_if(builder.graph().nodes().begin(), builder.graph().nodes().end(), [&](const Node& node) {
          return std::find(node.outputs.begin(), node.outputs.end(), losses[i].sum) != node.outputs.end();
        });
    if (maker != builder.graph().nodes().end()) builder.graph().set_chunk(maker->chunk);
    const auto made = add<LossSeed>(builder.graph(),
                                    {.main_terms = losses[0].terms, .terms = losses[i].terms, .scale = scale},
                                    {losses[i].weight});
    builder.add_gradient(losses[i].sum, made.seed);
  }
}

}  // namespace

std::vector<ValueId> differentiate(Graph& graph, std::span<const WeightedLoss> losses,
                                   std::span<const GivenGradient> given, ValueId scale) {
  STRATA_CHECK(!losses.empty() || !given.empty(), "nothing to differentiate");
  STRATA_CHECK(losses.empty() || losses[0].weight == 1, "the main loss has the weight {}, expected 1",
               losses[0].weight);
  GradientBuilder builder(graph);
  const auto forward_count = static_cast<std::ptrdiff_t>(graph.nodes().size());
  graph.set_layer(kNone);
  builder.input_grad();
  add_seeds(builder, losses, scale);
  for (const GivenGradient& one : given) builder.add_gradient(one.value, one.gradient);
  std::vector<std::ptrdiff_t> replaced;
  std::vector<bool> found(losses.size());
  for (std::ptrdiff_t i = forward_count; i-- > 0;) {
    const Node node = graph.nodes()[static_cast<size_t>(i)];  // a copy: the rule appends to the nodes
    if (node.op->gradient == nullptr) continue;
    bool flows = false, is_loss = false;
    for (const ValueId output : node.outputs) {
      if (output == kNone) continue;
      flows = flows || builder.gradient_of(output) != kNone;
      for (size_t l = 0; l < losses.size(); ++l) {
        if (losses[l].sum != output) continue;
        is_loss = true;
        found[l] = true;
      }
    }
    if (!flows && !is_loss) continue;
    graph.set_layer(node.layer);
    graph.set_chunk(node.chunk);
    builder.input_grad();
    node.op->gradient(builder, node);
    if (builder.take_replaced()) replaced.push_back(i);
  }
  for (size_t l = 0; l < losses.size(); ++l)
    STRATA_CHECK(found[l], "no node produces the loss {}", graph.value(losses[l].sum).name);
  for (const std::ptrdiff_t i : replaced) graph.nodes().erase(graph.nodes().begin() + i);  // the last first
  for (Parameter& parameter : graph.parameters()) {
    if (!parameter.is_trained()) continue;
    STRATA_CHECK(parameter.gradient != kNone, "no gradient reaches {}", graph.value(parameter.value).name);
  }
  graph.set_layer(kNone);
  graph.set_chunk(0);
  graph.set_phase(Phase::kForward);
  return std::move(builder).gradients();
}

}  // namespace strata::graph
