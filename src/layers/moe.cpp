#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "layers/context_parallel.h"
#include "layers/expert_ffn.h"
#include "layers/moe_parts.h"
#include "ops/experts/experts.h"
#include "ops/jitter/jitter.h"
#include "ops/linear/linear.h"
#include "ops/two_level/two_level.h"

namespace strata::layers {

using graph::Init;
using graph::MetricKind;
using graph::ParameterRole;

bool MoeSpec::at(int64_t layer) const {
  if (count == 0 || layer < first || std::find(dense.begin(), dense.end(), layer) != dense.end())
    return false;
  return period <= 1 || layer % period == (place < 0 ? period - 1 : place);
}
bool MoeSpec::at_encoder(int64_t layer) const {
  MoeSpec encoder = *this;
  encoder.period = encoder_period;
  return encoder.at(layer);
}

namespace {

// The sum of this kind, which the layers of a graph share.
ValueId shared_sum(Context& context, MetricKind kind) {
  const ValueId there = context.graph.metric(kind);
  if (there != kNone) return there;
  context.results.losses.push_back(context.graph.add_metric(kind, DType::kF64, 1));
  return context.results.losses.back();
}
// This layer's counts, i64[experts].
ValueId counts_of(const Context& context, const MoeLayer& layer) {
  return context.graph.metric(MetricKind::kExpertTokens, static_cast<int32_t>(layer.number));
}

// Tokens over which a balancing loss is taken: of each rank's part of the micro-batch, where sequences are no
// groups.
int64_t sequences_of_group(const Context& context, const MoeSpec& spec) {
  const bool by_sequence = spec.balance == MoeSpec::Balance::kSequence;
  return by_sequence ? 1 : context.rows.sequences / context.graph.mesh().batch_ranks();
}
int64_t rows_of_group(const Context& context, const MoeSpec& spec) {
  return sequences_of_group(context, spec) * context.rows.length;
}
// The number of `rows` that are tokens.
int64_t tokens_of(const Context& context, int64_t rows) {
  return rows / context.rows.length * (context.rows.length - context.rows.idle);
}
ops::IdleRows idle_rows(const Context& context) {
  return {.sequence = context.rows.length, .count = context.rows.idle};
}
// An encoder's tokens have no targets; those of its decoder's sequence count.
int64_t target_length(const Context& context) {
  return context.rows.target_length > 0 ? context.rows.target_length : context.rows.length;
}
ValueId whole_targets(Context& context) {
  return whole_sequences(context, context.inputs.batch[Column::kTargets], target_length(context));
}

void add_loss(Context& context, const MoeSpec& spec, const ops::RouterSumsOf& sums, double coefficient,
              int64_t layers) {
  const ValueId sum = shared_sum(context, MetricKind::kBalanceLossSum), targets = whole_targets(context);
  graph::add_into<ops::BalanceLoss>(
      context.graph, {.probabilities = sums.probabilities, .counts = sums.counts, .targets = targets},
      {.sum = sum},
      {.coefficient = coefficient,
       .k = spec.route.k,
       .rows = sequences_of_group(context, spec) * target_length(context),
       .tokens = layers * tokens_of(context, rows_of_group(context, spec))});
}

// Sums over whole sequences, even if ranks shard their tokens: ranks of the tensor axis have any part of the
// rows and gather them all; ranks of the context axis have a part of each sequence, and their sums are added.
// Idle rows, which are the last of whole sequences, are excluded.
ops::RouterSumsOf sums_of(Context& context, const MoeLayer& layer, ValueId logits, ValueId ids) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  const auto whole = graph::Placement::replicated();
  const bool in_parts = shares_sequences(context) && context.rows.idle == 0;
  if (context.settings.sequence_parallel) {
    logits = graph::reshard(graph, logits, Axis::kTensor, whole);
    ids = graph::reshard(graph, ids, Axis::kTensor, whole);
  }
  if (!in_parts) {
    logits = whole_sequences(context, logits, context.rows.length);
    ids = whole_sequences(context, ids, context.rows.length);
  }
  ops::RouterSumsOf sums = graph::add<ops::RouterSums>(
      graph, {.logits = logits, .ids = ids},
      {.score = spec.route.score, .rows = rows_of_group(context, spec), .idle = idle_rows(context)});
  if (in_parts) {
    sums = {graph::reshard(graph, sums.probabilities, Axis::kContext, whole),
            graph::reshard(graph, sums.counts, Axis::kContext, whole)};
  }
  if (spec.balance == MoeSpec::Balance::kGlobal) {
    const auto counts = graph::add<ops::RunningCounts>(graph, {.counts = counts_of(context, layer)});
    sums.counts = graph::sum_over_ranks(graph, counts.now);
  }
  return sums;
}

void add_balance(Context& context, const MoeLayer& layer, ValueId logits, const ops::Routed& routed) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  if (spec.balance_coefficient != 0) {
    const ops::RouterSumsOf sums = sums_of(context, layer, logits, routed.ids);
    if (spec.pool_layers) {
      if (context.stages != nullptr) {
        throw ConfigError(
            "[{}] the stages of a pipeline do not have all layers; leave it out, or take pipeline = 1",
            context.words.pool_layers);
      }
      const bool is_first = context.results.pooled.counts == kNone;
      context.results.pooled =
          is_first ? sums
                   : ops::RouterSumsOf{
                         graph::add_sum(graph, context.results.pooled.probabilities, sums.probabilities),
                         graph::add_sum(graph, context.results.pooled.counts, sums.counts)};
      ++context.results.pooled_layers;
    } else {
      add_loss(context, spec, sums, spec.balance_coefficient, 1);
    }
  }
}

// Capacity of an expert: token-expert pairs from a group of `rows` tokens.
int64_t expert_capacity(const MoeLayer& layer, int64_t rows, const Words& words) {
  const MoeSpec& spec = layer.spec;
  const MoeSpec::Capacity& capacity = spec.capacity;
  if (capacity.slots > 0) return capacity.slots;
  const double share =
      capacity.factor * static_cast<double>(rows * spec.route.k) / static_cast<double>(spec.count);
  if (share < 1 && capacity.least == 1) {
    throw ConfigError(
        "[{}] of {} tokens with {} experts each, {} has {} experts that accept {:.2g} each: expected at least 1; "
        "take at least {:.3g}, {} = \"micro_batch\", or {}",
        words.capacity_factor, rows, spec.route.k, layer.ffn.name, spec.count, share, capacity.factor / share,
        words.capacity_over, words.min_capacity);
  }
  // What would be whole but for rounding is.
  return std::max(capacity.least, static_cast<int64_t>(std::ceil(share - 1e-9)));
}

// Where the documents of whole sequences begin. With Ulysses every rank has that for its attention.
ValueId begins_of_whole(Context& context) {
  if (context.inputs.batch[Column::kKvBegin] == kNone ||
      context.settings.context_kind == ContextKind::kUlysses)
    return context.inputs.batch[Column::kKvBegin];
  return whole_sequences(context, context.inputs.batch[Column::kKvBegin], context.rows.length);
}

// The token-expert pairs within the experts' capacity, which depend on all tokens of a group. `scores`: pairs
// with the greatest are kept; otherwise the first.
ops::Routed within_capacity(Context& context, const MoeLayer& layer, const ops::Routed& routed,
                            ValueId scores) {
  const MoeSpec& spec = layer.spec;
  if (!spec.capacity.bounds() || context.mode == Mode::kCached) return routed;
  Graph& graph = context.graph;
  const bool first = spec.capacity.keep == ops::CapacityAttrs::Keep::kFirst;
  const int64_t sequences =
      spec.capacity.over_sequence ? 1 : context.rows.sequences / graph.mesh().batch_ranks();
  const int64_t rows = sequences * context.rows.length;
  ValueId ids = routed.ids;
  if (context.settings.sequence_parallel) {
    ids = graph::reshard(graph, ids, Axis::kTensor, graph::Placement::replicated());
    scores = graph::reshard(graph, scores, Axis::kTensor, graph::Placement::replicated());
  }
  // Ranks that shard sequences decide identically over whole ones, and each takes its rows of the result.
  const int64_t length = context.rows.length;
  const ValueId begins = first && spec.capacity.over_sequence ? begins_of_whole(context) : kNone;
  scores = whole_sequences(context, scores, length);
  ids = whole_sequences(context, ids, length);
  const ValueId kept = graph::add<ops::LimitExperts>(
                           graph, {.ids = ids, .weights = scores, .begins = begins},
                           {.experts = spec.count,
                            .rows = rows,
                            .capacity = expert_capacity(layer, tokens_of(context, rows), context.words),
                            .keep = spec.capacity.keep,
                            .idle = idle_rows(context)})
                           .kept;
  const ValueId held = rows_of_stream(context, held_of_sequences(context, kept, length));
  return {held, graph::add<ops::WeightsOfKept>(graph, {.weights = routed.weights, .ids = held}).kept};
}

ValueId shared_expert(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  const ValueId y = ffn(context,
                        {.name = layer.ffn.name + ".shared",
                         .hidden_size = layer.ffn.hidden_size,
                         .intermediate_size = spec.shared_size,
                         .activation = layer.ffn.activation,
                         .gated = layer.ffn.gated},
                        x);
  if (!spec.shared_gate) return y;
  // One score a token and nothing to choose from: the sigmoid of the gate.
  const ValueId gate = router_logits(context, layer.ffn.name + ".shared.gate", 1, layer.ffn.hidden_size, x);
  const auto score =
      graph::add<ops::Route>(graph, {.logits = gate}, {.score = ops::RouteAttrs::Score::kSigmoid});
  return ops::scale_rows(graph, y, score.weights);
}

}  // namespace

ValueId jittered(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  if (spec.jitter == 0 || !context.settings.trains_experts) return x;
  Graph& graph = context.graph;
  const int64_t length = context.rows.length;
  const ValueId places =
      graph::add<ops::SamplePlaces>(graph, {.samples = context.inputs.batch[Column::kSamples]}, {length})
          .places;
  const ValueId held = rows_of_stream(context, held_of_sequences(context, places, length));
  return graph::add<ops::Jitter>(graph, {.x = ops::cast(graph, x, DType::kF32), .places = held},
                                 {.eps = spec.jitter, .stream = layer.number + 1})
      .y;
}

void end_of_experts(Context& context, const MoeSpec& spec) {
  if (context.results.pooled.counts == kNone) return;
  const auto k = static_cast<double>(spec.route.k);
  add_loss(context, spec, context.results.pooled, k * spec.balance_coefficient,
           context.results.pooled_layers);
}

// Logits in fp32: the choice of experts is sensitive to small differences.
ValueId router_logits(Context& context, const std::string& name, int64_t outputs, int64_t width, ValueId x,
                      bool biased) {
  Graph& graph = context.graph;
  const ValueId weight =
      graph.add_parameter(name + ".weight", ParameterRole::kRouter, {outputs, width}, {Init::Kind::kNormal});
  const ValueId bias =
      biased ? graph.add_parameter(name + ".bias", ParameterRole::kBias, {outputs}, {Init::Kind::kZeros})
             : kNone;
  return ops::linear(graph, ops::cast(graph, x, DType::kF32), weight, bias);
}

namespace {

// An encoder needs all targets of a sequence for any of its tokens, so every rank adds up all rows; and so
// does its decoder, since a sum is either whole on each rank or has a term from each.
void add_z_loss_to(Context& context, ValueId logits, ValueId sum, double coefficient) {
  const bool of_encoder = context.rows.target_length > 0, has_encoder = context.rows.encoder_length > 0;
  if (!of_encoder && !has_encoder) {
    const ValueId targets = rows_of_stream(context, context.inputs.batch[Column::kTargets]);
    return graph::add_into<ops::RouterZLoss>(context.graph, {.logits = logits, .targets = targets},
                                             {.sum = sum}, {.coefficient = coefficient});
  }
  if (context.settings.sequence_parallel)
    logits = graph::reshard(context.graph, logits, Axis::kTensor, graph::Placement::replicated());
  const ValueId targets = whole_targets(context);
  logits = whole_sequences(context, logits, context.rows.length);
  graph::add_into<ops::RouterZLoss>(
      context.graph, {.logits = logits, .targets = targets}, {.sum = sum},
      {.coefficient = coefficient, .rows = of_encoder ? context.rows.length : 0});
}

}  // namespace

void count_slots(Context& context, const MoeLayer& layer, ValueId logits, ValueId ids, ValueId targets) {
  const MoeSpec& spec = layer.spec;
  add_z_loss_to(context, logits, router_metric(context, layer, MetricKind::kRouterSquares, DType::kF64, 1),
                1);
  ops::count_experts(context.graph, ids, targets,
                     router_metric(context, layer, MetricKind::kExpertTokens, DType::kI64, spec.count));
}

void add_z_loss(Context& context, const MoeSpec& spec, ValueId logits) {
  if (spec.z_coefficient != 0)
    add_z_loss_to(context, logits, shared_sum(context, MetricKind::kRouterZLossSum), spec.z_coefficient);
}

namespace {

// Each token goes to k experts.
ValueId experts_of_tokens(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  const int64_t width = layer.ffn.hidden_size;
  const ValueId read = jittered(context, layer, x);
  const ValueId own =
      router_logits(context, layer.ffn.name + ".router", spec.count, width, read, spec.biases);
  ValueId logits = own, groups = kNone, bias = kNone;
  if (spec.router == MoeSpec::Router::kTwoLevel) {
    groups = router_logits(context, layer.ffn.name + ".router_groups", spec.route.groups, width, read);
    logits = graph::add<ops::TwoLevelLogits>(graph, {.groups = groups, .logits = own}).y;
  }
  if (spec.router_bias) {
    bias = graph.add_parameter(layer.ffn.name + ".router.bias", ParameterRole::kRouterBias, {spec.count},
                               {Init::Kind::kZeros});
  }
  const bool hashes = spec.router == MoeSpec::Router::kHash;
  const ValueId tokens = hashes ? rows_of_stream(context, context.inputs.batch[Column::kTokens]) : kNone;
  ops::RouteAttrs route = spec.route;
  if (hashes) route.hash_stream = layer.number + 1;  // each layer hashes differently
  ops::Routed routed =
      graph::add<ops::Route>(graph, {.logits = logits, .bias = bias, .tokens = tokens}, route);
  // An encoder's tokens have none of their own.
  const bool has_targets = context.settings.trains_experts && context.rows.target_length == 0;
  const ValueId targets =
      has_targets ? rows_of_stream(context, context.inputs.batch[Column::kTargets]) : kNone;
  if (context.settings.trains_experts) {
    count_slots(context, layer, own, routed.ids, targets);
    add_balance(context, layer, logits, routed);
    // The logits of two levels are normalized already.
    add_z_loss(context, spec, own);
    if (groups != kNone) add_z_loss(context, spec, groups);
    if (bias != kNone) {
      // Before the experts' weights are added: the bias is the last parameter.
      graph.parameters().back().balance.loads = counts_of(context, layer);
      graph.parameters().back().balance.rate = spec.bias_rate;
    }
  }
  // Loads are those that the router requests: balancing sees dropped pairs too.
  ValueId scores = routed.weights;
  const bool by_score = spec.capacity.bounds() && spec.capacity.keep == ops::CapacityAttrs::Keep::kGreatest;
  if (by_score && spec.route.normalize && context.mode != Mode::kCached) {
    // Weights that add up to 1 do not show how probable a token's experts are: with one per token all are 1.
    route.normalize = false;
    scores = graph::add<ops::Route>(graph, {.logits = logits, .bias = bias, .tokens = tokens}, route).weights;
  }
  routed = within_capacity(context, layer, routed, scores);
  if (context.settings.trains_experts && spec.capacity.bounds()) {
    ops::count_experts(graph, routed.ids, targets,
                       router_metric(context, layer, MetricKind::kExpertKept, DType::kI64, spec.count));
  }
  if (spec.latent_size == 0) return experts_of(context, layer, x, routed.ids, routed.weights);
  // Experts read and write a latent, which is as wide on every rank.
  const auto projected_to = [&](const char* part, ParameterRole role, int64_t inputs, int64_t outputs,
                                ValueId rows) {
    return linear(context,
                  {.name = layer.ffn.name + part,
                   .role = role,
                   .inputs = inputs,
                   .outputs = outputs,
                   .bias = layer.ffn.bias,
                   .parallel = LinearSpec::Parallel::kReplicated},
                  rows);
  };
  FfnSpec of_latent = layer.ffn;
  of_latent.hidden_size = spec.latent_size;
  const ValueId latent = projected_to(".latent_in", ParameterRole::kFfnIn, width, spec.latent_size, x);
  const ValueId y = experts_of(context, {spec, of_latent, layer.number}, latent, routed.ids, routed.weights);
  return projected_to(".latent_out", ParameterRole::kFfnOut, spec.latent_size, width, y);
}

ValueId routed_experts(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  switch (spec.router) {
    case MoeSpec::Router::kExpertChoice:
      return experts_that_choose(context, layer, x);
    case MoeSpec::Router::kSoft:
      return soft_experts(context, layer, x);
    case MoeSpec::Router::kTopK:
    case MoeSpec::Router::kHash:
    case MoeSpec::Router::kTwoLevel:
      break;
  }
  return experts_of_tokens(context, layer, x);
}

}  // namespace

ValueId moe(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  const ValueId y = routed_experts(context, layer, x);
  if (spec.shared_size == 0) return y;
  return graph::add_sum(context.graph, y, shared_expert(context, layer, x));
}

}  // namespace strata::layers
