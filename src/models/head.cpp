#include "models/head.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/select/select.h"
#include "ops/softcap/softcap.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::models {

using graph::Role;
using graph::Value;
using graph::ValueId;

namespace {

// For a head whose rows the ranks of the tensor axis shard: each computes statistics of its logits for all
// tokens, and reduces those of all ranks for its own tokens of the residual stream.
ops::Loss loss_over_ranks(layers::Context& context, ValueId values, ValueId head, ValueId targets,
                          const ops::LossOptions& options) {
  graph::Graph& graph = context.graph;
  const ValueId own =
      ops::cross_entropy_statistics(graph, layers::gathered(context, values), head, targets, options);
  const auto of_stream =
      context.settings.sequence_parallel ? graph::Placement::sharded(1) : graph::Placement::replicated();
  return ops::loss_of_statistics(graph, graph::reshard(graph, own, graph::Axis::kTensor, of_stream),
                                 layers::rows_of_stream(context, targets), options);
}

// Terms of a loss in the step, which the host writes before its first micro-batch.
ValueId terms_of_step(graph::Graph& graph, std::string name, int32_t number) {
  Value terms;
  terms.name = std::move(name);
  terms.dtype = DType::kI64;
  terms.shape = {1};
  terms.role = Role::kStep;
  const ValueId id = graph.add_value(std::move(terms));
  graph.set_metric(graph::MetricKind::kLossTerms, id, number);
  return id;
}

}  // namespace

Losses add_losses(layers::Context& context, const Hidden& hidden, bool per_token, LossForm form,
                  double target_share) {
  graph::Graph& graph = context.graph;
  ops::LossOptions options{.per_token = per_token, .softcap = hidden.softcap, .bias = hidden.bias};
  options.vocab_start = ops::vocab_start(graph, hidden.head, graph::Axis::kTensor);
  options.target_share = target_share;
  options.one_gradient = options.vocab_start != graph::kNone && form == LossForm::kFused;
  const auto build = form == LossForm::kSplit ? ops::split_cross_entropy : ops::linear_cross_entropy;
  const auto loss_of = [&](ValueId values, ValueId targets) {
    return options.vocab_start != graph::kNone
               ? loss_over_ranks(context, values, hidden.head, targets, options)
               : build(graph, values, hidden.head, layers::rows_of_stream(context, targets), options);
  };
  const ops::Loss loss = loss_of(hidden.values, context.inputs.batch[Column::kTargets]);
  Losses losses{{{.sum = loss.sum}}, loss.count};
  if (hidden.predicted.empty()) return losses;
  losses.all.front().terms = terms_of_step(graph, "loss_terms", 0);
  options.per_token = false;
  const auto share = hidden.predict_weight / static_cast<double>(hidden.predicted.size());
  for (const Hidden::Predicted& one : hidden.predicted) {
    options.number = static_cast<int32_t>(losses.all.size());
    options.prefix = fmt::format("predict.{}.", options.number);
    const ValueId sum = loss_of(one.values, one.targets).sum;
    losses.all.push_back({.sum = sum,
                          .weight = share,
                          .terms = terms_of_step(graph, options.prefix + "terms", options.number)});
  }
  return losses;
}

void add_logits(layers::Context& context, const Hidden& hidden) {
  graph::Graph& graph = context.graph;
  ValueId rows = hidden.values;
  if (context.rows.length > 1) {
    STRATA_CHECK(context.rows.sequences == 1, "a prefill takes one text at a time, not {}",
                 context.rows.sequences);
    Value index;
    index.name = "last_row";
    index.dtype = DType::kI32;
    index.shape = {1};
    index.role = Role::kStep;
    rows =
        graph::add<ops::TakeRow>(graph, {.x = hidden.values, .index = graph.add_value(std::move(index))}).row;
  }
  Value logits;
  logits.name = "logits";
  logits.shape = {context.rows.sequences, graph.value(hidden.head).shape[0]};
  logits.role = Role::kStep;
  const ValueId out = graph.add_value(std::move(logits));
  if (graph.mesh().size(graph::Axis::kTensor) == 1) {
    graph::add_into<ops::Linear>(graph, {.x = rows, .weight = hidden.head}, {.y = out}, {.f32_output = true});
  } else {
    // All ranks need all logits, to draw the same token.
    const ValueId own = ops::linear(graph, rows, hidden.head, graph::kNone, {.f32_output = true});
    graph.value(own).sharding.padding.uneven = graph.value(hidden.head).sharding.padding.uneven;
    graph::add_into<graph::Reshard>(
        graph, {.x = {own}}, {.moved = {out}},
        {.axis = graph::Axis::kTensor, .from = graph::Placement::sharded(1), .to = {}});
  }
  if (hidden.softcap > 0) graph::add_into<ops::Softcap>(graph, {.x = out}, {.y = out}, {hidden.softcap});
}

}  // namespace strata::models
