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
  graph.add_node_into(ops::kLinear, {rows, hidden.head, graph::kNone}, {out}, ops::LinearAttrs{.f32_output = true});
  if (hidden.softcap > 0) graph.add_node_into(ops::kSoftcap, {out}, {out}, ops::SoftcapAttrs{hidden.softcap});
}

layers::Mode mode_of(Kind kind) {
  switch (kind) {
    case Kind::kTrain:
    case Kind::kEvaluate:
      break;
    case Kind::kPrefill:
    case Kind::kDecode:
      return layers::Mode::kCached;
    case Kind::kEncodeSource:
      return layers::Mode::kEncodeSource;
  }
  return layers::Mode::kSequences;
}

}  // namespace

graph::Graph build_graph(const Request& request, const CompileOptions& options,
                         std::vector<optim::Moments>* moments) {
  Graph graph;
  const layers::Mode mode = mode_of(request.kind);
  const bool writes = mode != layers::Mode::kSequences;  // a text, from caches
  STRATA_CHECK(!writes || options.model.architecture != models::Architecture::kEncoder,
               "an encoder writes no text");
  STRATA_CHECK(
      (request.encoder_length > 0) == (options.model.architecture == models::Architecture::kEncoderDecoder),
      "encoder_length is {} for a {} model", request.encoder_length, options.model.family->name);
  layers::Context context{.graph = graph,
                          .mode = mode,
                          .activations = options.activations,
                          .sequence_length = request.sequence_length,
                          .sequences = request.sequences,
                          .cache_capacity = writes ? options.cache_capacity : 0,
                          .cache_slots = writes ? options.cache_slots : 0,
                          .document_mask = request.document_mask,
                          .encoder_length = request.encoder_length};
  layers::add_batch(context);
  const models::Hidden hidden = options.model.family->build(options.model, context);
  if (mode == layers::Mode::kEncodeSource) return graph;
  if (mode == layers::Mode::kCached) {
    add_logits(graph, request, hidden);
    return graph;
  }
  const ops::Loss loss = ops::linear_cross_entropy(
      graph, hidden.values, hidden.head, context.targets,
      {.per_token = request.per_token_loss, .softcap = hidden.softcap, .bias = hidden.bias});
  if (request.kind == Kind::kTrain) {
    graph::differentiate(graph);
    STRATA_CHECK(options.rule_of != nullptr, "a training program needs the optimizer's rules");
    auto update = optim::add_adamw_update(graph, loss.count, options.rule_of);
    if (moments != nullptr) *moments = std::move(update.moments);
  }
  return graph;
}

}  // namespace strata::program
