#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/context_parallel.h"
#include "layers/expert_ffn.h"
#include "ops/experts.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;

namespace {

// Logits in fp32 whatever the activations are: which experts are chosen hangs on small differences.
ValueId logits_of(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x,
                  bool biased = false) {
  Graph& graph = context.graph;
  const ValueId weight =
      graph.add_parameter(name + ".weight", ParameterRole::kRouter, {outputs, width}, {Init::Kind::kNormal});
  const ValueId bias =
      biased ? graph.add_parameter(name + ".bias", ParameterRole::kBias, {outputs}, {Init::Kind::kZeros})
             : kNone;
  return ops::linear(graph, ops::cast(graph, x, DType::kF32), weight, bias);
}

// The sum of this name, which the layers of a graph share.
ValueId shared_sum(Context& context, const char* name) {
  const ValueId there = context.graph.find_value(name);
  if (there != kNone) return there;
  context.losses.push_back(step_metric(context, name, DType::kF64, 1));
  return context.losses.back();
}

void add_loss(Context& context, const ops::RouterSumsOf& sums, double coefficient, int64_t k) {
  const ValueId targets = whole_sequences(context, context.targets, context.sequence_length);
  ops::balance_loss(context.graph, sums, targets, shared_sum(context, "balance_loss_sum"),
                    {.coefficient = coefficient, .k = k});
}

// Sums over whole sequences, also where ranks share their tokens: those of "tensor" have any part of the
// rows, which all of them put together, and those of "context" a part of each sequence, whose sums are added
// up.
ops::RouterSumsOf sums_of(Context& context, const MoeSpec& spec, ValueId logits, ValueId ids) {
  Graph& graph = context.graph;
  const auto whole = graph::Placement::replicated();
  if (context.sequence_parallel) {
    logits = graph::reshard(graph, logits, "tensor", whole);
    ids = graph::reshard(graph, ids, "tensor", whole);
  }
  // Each rank's part of the micro-batch is a group, where sequences are none.
  const int64_t sequences = spec.balance_by_sequence ? 1 : context.sequences / graph.mesh().batch_ranks();
  const auto sums = ops::router_sums(
      graph, logits, ids, {.score = spec.route.score, .rows = sequences * context.sequence_length});
  if (!shares_sequences(context)) return sums;
  return {graph::reshard(graph, sums.probabilities, "context", whole),
          graph::reshard(graph, sums.counts, "context", whole)};
}

void add_balance(Context& context, const MoeSpec& spec, ValueId logits, const ops::Routed& routed) {
  Graph& graph = context.graph;
  const ValueId targets = rows_of_stream(context, context.targets);
  context.expert_tokens.push_back(step_metric(context, spec.name + ".router_squares", DType::kF64, 1));
  ops::router_z_loss(graph, logits, targets, context.expert_tokens.back(), 1);
  context.expert_tokens.push_back(
      step_metric(context, spec.name + ".expert_tokens", DType::kI64, spec.experts));
  ops::count_experts(graph, routed.ids, targets, context.expert_tokens.back());
  if (spec.balance_coefficient != 0) {
    const ops::RouterSumsOf sums = sums_of(context, spec, logits, routed.ids);
    if (spec.pool_layers) {
      if (context.stages != nullptr) {
        throw ConfigError(
            "[moe.pool_layers] the stages of a pipeline do not have all layers; leave it out, or take "
            "pipeline = 1");
      }
      const bool is_first = context.pooled.counts == kNone;
      context.pooled = is_first ? sums
                                : ops::RouterSumsOf{
                                      graph::add_sum(graph, context.pooled.probabilities, sums.probabilities),
                                      graph::add_sum(graph, context.pooled.counts, sums.counts)};
    } else {
      add_loss(context, sums, spec.balance_coefficient, spec.route.k);
    }
  }
  if (spec.z_coefficient != 0) {
    ops::router_z_loss(graph, logits, targets, shared_sum(context, "router_z_loss_sum"), spec.z_coefficient);
  }
}

ValueId shared_expert(Context& context, const MoeSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const ValueId y = ffn(context,
                        {.name = spec.name + ".shared",
                         .hidden_size = spec.hidden_size,
                         .intermediate_size = spec.shared_size,
                         .activation = spec.activation},
                        x);
  if (!spec.shared_gate) return y;
  // One score a token and nothing to choose from: the sigmoid of the gate.
  const ValueId gate = logits_of(context, spec.name + ".shared.gate", 1, spec.hidden_size, x);
  return ops::scale_rows(graph, y,
                         ops::route(graph, gate, kNone, {.score = ops::RouteAttrs::Score::kSigmoid}).weights);
}

}  // namespace

void end_of_experts(Context& context, const MoeSpec& spec) {
  if (context.pooled.counts == kNone) return;
  const auto k = static_cast<double>(spec.route.k);
  add_loss(context, context.pooled, k * spec.balance_coefficient, spec.route.k);
}

ValueId moe(Context& context, const MoeSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const ValueId logits =
      logits_of(context, spec.name + ".router", spec.experts, spec.hidden_size, x, spec.biases);
  ValueId bias = kNone;
  if (spec.router_bias) {
    bias = graph.add_parameter(spec.name + ".router.bias", ParameterRole::kRouterBias, {spec.experts},
                               {Init::Kind::kZeros});
  }
  const ops::Routed routed = ops::route(graph, logits, bias, spec.route);
  if (context.trains_experts) {
    add_balance(context, spec, logits, routed);
    if (bias != kNone) {
      graph.parameters().back().loads = context.expert_tokens.back();
      graph.parameters().back().balance_rate = spec.bias_rate;
    }
  }
  const ValueId y = experts_of(context, spec, x, routed);
  if (spec.shared_size == 0) return y;
  return graph::add_sum(graph, y, shared_expert(context, spec, x));
}

}  // namespace strata::layers
