#include "program/model_graph.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "graph/differentiate.h"
#include "graph/reshard.h"
#include "graph/zero.h"
#include "models/head.h"
#include "program/pipeline.h"

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
    return optim::shard_padding(graph, optim::rule_for(graph, parameter, options.rule_of),
                                graph.value(parameter.value));
  });
}

// Whether random bits of rounding follow from the places of tokens.
bool rounds_by_place(const CompileOptions& options) {
  return options.precision != nullptr && options.precision->recipe.rounds_gradients_stochastically;
}

// The losses that stages without a head have: nothing.
models::Losses no_losses(Graph& graph) {
  graph.add_metric(graph::MetricKind::kLossSum, DType::kF64, 1);
  return {{}, graph.add_metric(graph::MetricKind::kTokenCount, DType::kI64, 1)};
}

// Small gradients would be lost in fp16. kNone: no loss is scaled.
graph::ValueId loss_scale_of(Graph& graph, DType activations) {
  if (activations != DType::kF16) return graph::kNone;
  graph::Value scale;
  scale.name = "loss_scale";
  scale.shape = {1};
  scale.role = graph::Role::kStep;
  const graph::ValueId id = graph.add_value(std::move(scale));
  graph.set_metric(graph::MetricKind::kLossScale, id);
  return id;
}

// Makes what all ranks have counted of their routers the metrics, under the names that a rank's own counts
// have had.
void sum_router_counts(Graph& graph) {
  std::vector<graph::Metric> counts;
  std::vector<graph::ValueId> own;
  for (const graph::Metric& metric : graph.metrics()) {
    if (!is_router_count(metric.kind)) continue;
    counts.push_back(metric);
    own.push_back(metric.value);
  }
  graph.set_phase(graph::Phase::kUpdate);
  const std::vector<graph::ValueId> sums = graph::sum_over_ranks(graph, own);
  graph.set_phase(graph::Phase::kForward);
  for (size_t i = 0; i < own.size(); ++i) {
    if (sums[i] == own[i]) continue;
    graph::Value& sum = graph.value(sums[i]);
    sum.role = graph::Role::kMetric;
    sum.name = std::exchange(graph.value(own[i]).name, "own." + graph.value(own[i]).name);
    graph.set_metric(counts[i].kind, sums[i], counts[i].index);
    for (graph::Parameter& parameter : graph.parameters())
      if (parameter.balance.loads == own[i]) parameter.balance.loads = sums[i];
  }
}

// Parameters that other ranks of the pipeline have too.
void mark_shared(Graph& graph, const Pipeline& pipeline) {
  for (graph::Parameter& parameter : graph.parameters()) {
    if (parameter.layer != graph::kNone) continue;
    std::vector<int32_t> holders = holders_of(pipeline, parameter.role, parameter.of_encoder);
    if (holders.size() < 2) continue;
    parameter.sharing.is_first_holder = holders.front() == pipeline.rank;
    parameter.sharing.holders = std::move(holders);
  }
}

// Differentiates a rank's stages, and determines the messages between it and other ranks.
class StageBuilder {
 public:
  StageBuilder(Graph& graph, const Pipeline& pipeline, const std::vector<layers::LayerRange>& ranges)
      : graph_(graph), pipeline_(pipeline), ranges_(ranges), stages_(pipeline.stages()) {}

  std::vector<Message> forward() {
    each_range([&](int32_t chunk, const layers::LayerRange& range) {
      if (range.receives) add(false, {Segment::kForward, chunk}, stages_[at(chunk)] - 1, range.received);
      if (range.sends) add(true, {Segment::kForward, chunk}, stages_[at(chunk)] + 1, range.sent);
    });
    return messages_;
  }

  // No gradients pass between stages that learn each by itself.
  std::vector<Message> train_apart(const models::Losses& losses, graph::ValueId loss_scale) {
    if (!losses.all.empty()) graph::differentiate(graph_, losses.all, {}, loss_scale);
    return forward();
  }

  std::vector<Message> train(const models::Losses& losses, Backward backward, graph::ValueId loss_scale) {
    forward();
    const Segment segment = backward == Backward::kCombined ? Segment::kBackward : Segment::kInputGrad;
    std::vector<graph::GivenGradient> given;
    each_range([&](int32_t chunk, const layers::LayerRange& range) {
      if (!range.sends) return;
      std::vector<graph::ValueId> gradients;
      for (const graph::ValueId value : range.sent) {
        if (!has_gradient(value)) continue;
        given.push_back({value, received_gradient(value)});
        gradients.push_back(given.back().gradient);
      }
      add(false, {segment, chunk}, stages_[at(chunk)] + 1, gradients);
    });
    const std::vector<graph::ValueId> gradients = graph::differentiate(graph_, losses.all, given, loss_scale);
    graph_.set_phase(graph::Phase::kInputGrad);
    each_range([&](int32_t chunk, const layers::LayerRange& range) {
      if (!range.receives) return;
      graph_.set_chunk(chunk);
      std::vector<graph::ValueId> sent;
      for (const graph::ValueId value : range.received) {
        if (has_gradient(value))
          sent.push_back(graph::sum_over_ranks(graph_, gradients[static_cast<size_t>(value)]));
      }
      add(true, {segment, chunk}, stages_[at(chunk)] - 1, sent);
    });
    graph_.set_chunk(0);
    graph_.set_phase(graph::Phase::kForward);
    return messages_;
  }

 private:
  static size_t at(int32_t chunk) { return static_cast<size_t>(chunk); }

  template <typename Each>
  void each_range(const Each& each) {
    for (size_t i = 0; i < ranges_.size(); ++i) each(static_cast<int32_t>(i), ranges_[i]);
  }

  void add(bool sends, SegmentAt segment, int32_t other_stage, std::vector<graph::ValueId> values) {
    messages_.push_back({.sends = sends,
                         .at = segment,
                         .peer = pipeline_.schedule.rank_of_stage[static_cast<size_t>(other_stage)],
                         .values = std::move(values)});
    if (!sends) return;
    for (const graph::ValueId value : messages_.back().values)
      graph_.value(value).passage = graph::Value::Passage::kSent;
  }

  // The choice of an indexer has none.
  bool has_gradient(graph::ValueId value) const { return graph_.value(value).dtype != DType::kI32; }

  graph::ValueId received_gradient(graph::ValueId of) {
    const graph::Value& sent = graph_.value(of);
    graph::Value value;
    value.name = "received_grad." + sent.name;
    value.dtype = sent.dtype;
    value.shape = sent.shape;
    value.placements = sent.placements;
    value.passage = graph::Value::Passage::kReceived;
    return graph_.add_value(std::move(value));
  }

  Graph& graph_;
  const Pipeline& pipeline_;
  const std::vector<layers::LayerRange>& ranges_;
  std::vector<int32_t> stages_;
  std::vector<Message> messages_;
};

// A tensor of a file is one range of one parameter, even if ranks hold a parameter in shards.
void require_tensors_in_parts(const Graph& graph, const models::ModelConfig& model, const Words& words) {
  std::map<std::string_view, const graph::Parameter*> later_parts;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (parameter.part.first_row > 0) later_parts[parameter.part.of] = &parameter;
  }
  if (later_parts.empty()) return;
  for (const models::TensorRow& row : model.family->tensors(model)) {
    const auto part = later_parts.find(row.parameter);
    if (part == later_parts.end() || row.row >= part->second->part.first_row ||
        row.row + row.rows <= part->second->part.first_row)
      continue;
    throw ConfigError(
        "[{}] {} ranks would hold queries apart from {} key-value heads, which {} has as one tensor ({}); take a "
        "divisor of {}",
        words.tensor, graph.mesh().size(graph::Axis::kTensor), model.kv_heads, model.family->name,
        row.file_name, model.kv_heads);
  }
}

}  // namespace

ModelGraph build_graph(const Request& request, const CompileOptions& options) {
  ModelGraph model;
  model.graph = Graph(options.mesh);
  Graph& graph = model.graph;
  const layers::Mode mode = mode_of(request.kind);
  const bool writes = mode != layers::Mode::kSequences;  // a text, from caches
  STRATA_CHECK(!writes || options.model.architecture != models::Architecture::kEncoder,
               "an encoder writes no text");
  STRATA_CHECK(
      (request.encoder_length > 0) == (options.model.architecture == models::Architecture::kEncoderDecoder),
      "encoder_length is {} for a {} model", request.encoder_length, options.model.family->name);
  STRATA_CHECK(!writes || options.pipeline == nullptr, "the stages of a pipeline write no text");
  std::vector<layers::LayerRange> ranges;
  if (options.pipeline != nullptr) ranges = layer_ranges_of(*options.pipeline);
  const bool trains = request.kind == Kind::kTrain;
  const bool warms_up = trains && options.indexer == layers::Settings::Indexer::kDense;
  const double score_limit = trains && !warms_up ? options.score_limit : 0;  // frozen weights are not clipped
  layers::Context context{
      .graph = graph,
      .mode = mode,
      .rows = {.length = request.sequence_length,
               .sequences = request.sequences * (writes ? 1 : options.mesh.batch_ranks()),
               .idle = request.idle_rows,
               .encoder_length = request.encoder_length,
               .cache_capacity = writes ? options.cache_capacity : 0,
               .cache_slots = writes ? options.cache_slots : 0},
      .settings = {.activations = options.activations,
                   // Positions after a text's end are in no chunk of it, according to kKvBegin.
                   .document_mask = request.document_mask || options.model.sliding_window.chunked,
                   .counts_samples = trains && (options.model.experts.jitter > 0 || rounds_by_place(options)),
                   // What only goes forward need not save memory by it, and may have fewer rows than ranks.
                   .sequence_parallel = options.sequence_parallel && trains,
                   // The losses of single tokens are wanted where the host has whole rows.
                   .share_sequences = !writes && !request.per_token_loss,
                   .context_kind = options.context_kind,
                   .trains_experts = trains && !warms_up,
                   .indexer = options.indexer,
                   .trains_indexer = trains && options.model.indexer.has_value(),
                   .expert_layout = options.experts,
                   .score_limit = score_limit,
                   .predicts = trains},
      .stages = options.pipeline != nullptr ? &ranges : nullptr,
      .words = options.words};
  layers::add_batch(context);
  const models::Hidden hidden = options.model.family->build(options.model, context);
  require_tensors_in_parts(graph, options.model, options.words);
  if (mode == layers::Mode::kCached) models::add_logits(context, hidden);
  if (mode != layers::Mode::kSequences) {
    shard_parameters(graph, options);
    graph::drop_identities_pass(graph);
    return model;
  }
  const bool is_split = request.kind == Kind::kTrain && options.backward == Backward::kSplit;
  const auto form = is_split ? models::LossForm::kSplit : models::LossForm::kFused;
  models::Losses losses;
  if (hidden.values != graph::kNone) {
    losses = models::add_losses(context, hidden, request.per_token_loss, form, request.target_share);
  } else {
    losses = no_losses(graph);
  }
  if (warms_up) {  // only the indexer learns
    losses.all.clear();
    for (graph::Parameter& parameter : graph.parameters()) parameter.is_frozen = !parameter.of_indexer;
  }
  for (const graph::ValueId sum : context.results.losses)
    losses.all.push_back({.sum = sum, .in_main_terms = true});
  graph.set_chunk(0);
  if (options.pipeline != nullptr) {
    mark_shared(graph, *options.pipeline);
    model.chunks = static_cast<int32_t>(ranges.size());
  }
  shard_parameters(graph, options);
  if (request.kind == Kind::kTrain) {
    const graph::ValueId loss_scale = loss_scale_of(graph, options.activations);
    if (options.pipeline != nullptr) {
      StageBuilder stages(graph, *options.pipeline, ranges);
      model.messages = warms_up ? stages.train_apart(losses, loss_scale)
                                : stages.train(losses, options.backward, loss_scale);
    } else {
      graph::differentiate(graph, losses.all, {}, loss_scale);
    }
    graph::scatter_gradients(graph, options.zero);
    sum_router_counts(graph);
    STRATA_CHECK(options.rule_of != nullptr, "a training program needs the optimizer's rules");
    model.states = optim::add_update(graph, losses.token_count, graph.metric(graph::MetricKind::kLossSum),
                                     options.rule_of, loss_scale, score_limit)
                       .states;
  } else if (options.pipeline != nullptr) {
    model.messages = StageBuilder(graph, *options.pipeline, ranges).forward();
  }
  graph::drop_identities_pass(graph);
  graph::set_partial(graph, graph.metric(graph::MetricKind::kLossSum), graph::Axis::kPipeline);
  for (const graph::WeightedLoss& loss : losses.all)
    graph::set_partial(graph, loss.sum, graph::Axis::kPipeline);
  return model;
}

}  // namespace strata::program
