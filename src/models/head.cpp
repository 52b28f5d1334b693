#include "models/head.h"

#include "base/error.h"

namespace strata::models {

using graph::Role;
using graph::Value;
using graph::ValueId;

Losses add_losses(layers::Context& context, const Hidden& hidden, bool per_token, LossForm form) {
  const auto build = form == LossForm::kSplit ? ops::split_cross_entropy : ops::linear_cross_entropy;
  const ValueId targets = layers::rows_of_stream(context, context.targets);
  const ops::Loss loss = build(context.graph, hidden.values, hidden.head, targets,
                               {.per_token = per_token, .softcap = hidden.softcap, .bias = hidden.bias});
  return {{{.sum = loss.sum}}, loss.count};
}

void add_logits(layers::Context& context, const Hidden& hidden) {
  graph::Graph& graph = context.graph;
  ValueId rows = hidden.values;
  if (context.sequence_length > 1) {
    STRATA_CHECK(context.sequences == 1, "a prefill takes one text at a time, not {}", context.sequences);
    Value index;
    index.name = "last_row";
    index.dtype = DType::kI32;
    index.shape = {1};
    index.role = Role::kStep;
    rows = ops::take_row(graph, hidden.values, graph.add_value(std::move(index)));
  }
  Value logits;
  logits.name = "logits";
  logits.shape = {context.sequences, graph.value(hidden.head).shape[0]};
  logits.role = Role::kStep;
  const ValueId out = graph.add_value(std::move(logits));
  graph.add_node_into(ops::kLinear, {rows, hidden.head, graph::kNone}, {out},
                      ops::LinearAttrs{.f32_output = true});
  if (hidden.softcap > 0) graph.add_node_into(ops::kSoftcap, {out}, {out}, ops::SoftcapAttrs{hidden.softcap});
}

}  // namespace strata::models
