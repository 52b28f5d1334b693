#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/context_parallel.h"
#include "layers/layers.h"
#include "ops/experts.h"

namespace strata::layers {

using graph::Init;
using graph::ParameterRole;
using graph::Role;
using graph::Value;

namespace {

ValueId expert_weight(Context& context, const std::string& name, ParameterRole role, const Shape& shape,
                      std::vector<int64_t> segments) {
  return context.graph.add_parameter(name, role, shape, {Init::Kind::kNormal}, {}, std::move(segments));
}

// Logits in fp32 whatever the activations are: which experts are chosen hangs on small differences.
ValueId logits_of(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x) {
  const ValueId weight =
      expert_weight(context, name + ".weight", ParameterRole::kRouter, {outputs, width}, {});
  return ops::linear(context.graph, ops::cast(context.graph, x, DType::kF32), weight);
}

ValueId metric(Context& context, std::string name, DType dtype, int64_t elements) {
  Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = {elements};
  value.role = Role::kMetric;
  return context.graph.add_value(std::move(value));
}

// The sum of this name, which the layers of a graph share.
ValueId shared_sum(Context& context, const char* name) {
  const ValueId there = context.graph.find_value(name);
  if (there != kNone) return there;
  context.losses.push_back(metric(context, name, DType::kF64, 1));
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
  context.expert_tokens.push_back(metric(context, spec.name + ".expert_tokens", DType::kI64, spec.experts));
  ops::count_experts(graph, routed.ids, context.expert_tokens.back());
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
    ops::router_z_loss(graph, logits, rows_of_stream(context, context.targets),
                       shared_sum(context, "router_z_loss_sum"), spec.z_coefficient);
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
  const int64_t ffn_width = spec.intermediate_size, width = spec.hidden_size;
  const ValueId logits = logits_of(context, spec.name + ".router", spec.experts, width, x);
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
  const ValueId up = expert_weight(context, spec.name + ".experts.up.weight", ParameterRole::kExpertIn,
                                   {spec.experts * 2 * ffn_width, width},
                                   std::vector<int64_t>(static_cast<size_t>(2 * spec.experts), ffn_width));
  const ValueId down = expert_weight(context, spec.name + ".experts.down.weight", ParameterRole::kExpertOut,
                                     {spec.experts * width, ffn_width},
                                     std::vector<int64_t>(static_cast<size_t>(spec.experts), width));
  const ValueId gate_up = ops::experts_in(graph, x, routed.ids, up, spec.experts);
  // A token's weight of an expert passes through its last product, which is linear: there are fewer numbers
  // to multiply here, and what the expert gives need not be kept.
  const ValueId hidden = ops::scale_rows(graph, ops::gated(graph, gate_up, spec.activation), routed.weights);
  const ValueId y = ops::experts_out(graph, hidden, routed.ids, down, spec.experts);
  if (spec.shared_size == 0) return y;
  return graph::add_sum(graph, y, shared_expert(context, spec, x));
}

}  // namespace strata::layers
