#include "program/model_graph.h"

#include "base/error.h"
#include "graph/differentiate.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::Role;
using graph::Value;
using graph::ValueId;

// Of the last row of a chunk, or of every text's newest token.
void add_logits(Graph& graph, const Request& request, const models::Hidden& hidden) {
  ValueId rows = hidden.values;
  if (request.sequence_length > 1) {
    STRATA_CHECK(request.sequences == 1, "a prefill takes one text at a time, not {}", request.sequences);
    Value index;
    index.name = "last_row";
    index.dtype = DType::kI32;
    index.shape = {1};
    index.role = Role::kStep;
    rows = ops::take_row(graph, hidden.values, graph.add_value(std::move(index)));
  }
  Value logits;
  logits.name = "logits";
  logits.shape = {request.sequences, graph.value(hidden.head).shape[0]};
  logits.role = Role::kStep;
  const ValueId out = graph.add_value(std::move(logits));
  graph.add_node_into(ops::kLinear, {rows, hidden.head, graph::kNone}, {out}, {{"f32_output", int64_t{1}}});
  if (hidden.softcap > 0) graph.add_node_into(ops::kSoftcap, {out}, {out}, {{"softcap", hidden.softcap}});
}

}  // namespace

graph::Graph build_graph(const Request& request, const CompileOptions& options,
                         std::vector<optim::Moments>* moments) {
  Graph graph;
  const bool cached = request.kind == Kind::kPrefill || request.kind == Kind::kDecode;
  layers::Context context{.graph = graph,
                          .mode = cached ? layers::Mode::kCached : layers::Mode::kSequences,
                          .activations = options.activations,
                          .sequence_length = request.sequence_length,
                          .sequences = request.sequences,
                          .cache_room = cached ? options.cache_room : 0,
                          .cache_slots = cached ? options.cache_slots : 0,
                          .document_mask = request.document_mask};
  layers::add_batch(context);
  const models::Hidden hidden = options.model.family->build(options.model, context);
  if (cached) {
    add_logits(graph, request, hidden);
    return graph;
  }
  const ops::Loss loss =
      ops::linear_cross_entropy(graph, hidden.values, hidden.head, context.targets,
                                {.per_token = request.per_token_loss, .softcap = hidden.softcap});
  if (request.kind == Kind::kTrain) {
    graph::differentiate(graph);
    STRATA_CHECK(options.rule_of != nullptr, "a training program needs the optimizer's rules");
    auto update = optim::add_adamw_update(graph, loss.count, options.rule_of);
    if (moments != nullptr) *moments = std::move(update.moments);
  }
  return graph;
}

}  // namespace strata::program
