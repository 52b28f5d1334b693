#include "program/model_graph.h"

#include "base/error.h"
#include "graph/differentiate.h"
#include "graph/reshard.h"
#include "graph/zero.h"
#include "models/head.h"

namespace strata::program {
namespace {

using graph::Graph;

layers::Mode mode_of(Kind kind) {
  switch (kind) {
    case Kind::kTrain:
    case Kind::kEvaluate:
      break;
    case Kind::kPrefill:
    case Kind::kDecode:
      return layers::Mode::kCached;
    case Kind::kEncoderPrefill:
      return layers::Mode::kEncoderPrefill;
  }
  return layers::Mode::kSequences;
}

void shard_parameters(Graph& graph, const CompileOptions& options) {
  if (options.zero == 0) return;
  STRATA_CHECK(options.rule_of != nullptr, "parameters are sharded as their optimizers allow");
  graph::shard_parameters(graph, options.zero, [&](const graph::Parameter& parameter) {
    const graph::Value& value = graph.value(parameter.value);
    return optim::shard_grain(options.rule_of(value.name, parameter.role), value.shape);
  });
}

}  // namespace

graph::Graph build_graph(const Request& request, const CompileOptions& options,
                         std::vector<optim::State>* states) {
  Graph graph(options.mesh);
  const layers::Mode mode = mode_of(request.kind);
  const bool writes = mode != layers::Mode::kSequences;  // a text, from caches
  STRATA_CHECK(!writes || options.model.architecture != models::Architecture::kEncoder,
               "an encoder writes no text");
  STRATA_CHECK(
      (request.encoder_length > 0) == (options.model.architecture == models::Architecture::kEncoderDecoder),
      "encoder_length is {} for a {} model", request.encoder_length, options.model.family->name);
  layers::Context context{
      .graph = graph,
      .mode = mode,
      .activations = options.activations,
      .sequence_length = request.sequence_length,
      .sequences = request.sequences * (writes ? 1 : options.mesh.batch_ranks()),
      .cache_capacity = writes ? options.cache_capacity : 0,
      .cache_slots = writes ? options.cache_slots : 0,
      .document_mask = request.document_mask,
      // What only goes forward need not save memory by it, and may have fewer rows than ranks.
      .sequence_parallel = options.sequence_parallel && request.kind == Kind::kTrain,
      .encoder_length = request.encoder_length};
  layers::add_batch(context);
  const models::Hidden hidden = options.model.family->build(options.model, context);
  if (mode == layers::Mode::kCached) models::add_logits(context, hidden);
  if (mode != layers::Mode::kSequences) {
    shard_parameters(graph, options);
    graph::drop_identities_pass(graph);
    return graph;
  }
  const bool is_split = request.kind == Kind::kTrain && options.backward == Backward::kSplit;
  const auto form = is_split ? models::LossForm::kSplit : models::LossForm::kFused;
  const models::Losses losses = models::add_losses(context, hidden, request.per_token_loss, form);
  shard_parameters(graph, options);
  if (request.kind == Kind::kTrain) {
    graph::differentiate(graph, losses.all);
    graph::scatter_gradients(graph, options.zero);
    STRATA_CHECK(options.rule_of != nullptr, "a training program needs the optimizer's rules");
    auto update = optim::add_update(graph, losses.token_count, options.rule_of);
    if (states != nullptr) *states = std::move(update.states);
  }
  graph::drop_identities_pass(graph);
  return graph;
}

}  // namespace strata::program
