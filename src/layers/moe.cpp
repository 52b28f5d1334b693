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
using graph::ParameterRole;

namespace {

// The sum of this name, which the layers of a graph share.
ValueId shared_sum(Context& context, const char* name) {
  const ValueId there = context.graph.find_value(name);
  if (there != kNone) return there;
  context.losses.push_back(step_metric(context, name, DType::kF64, 1));
  return context.losses.back();
}

// Tokens over which a balancing loss is taken: of each rank's part of the micro-batch, where sequences are no
// groups.
int64_t sequences_of_group(const Context& context, const MoeSpec& spec) {
  const bool by_sequence = spec.balance == MoeSpec::Balance::kSequence;
  return by_sequence ? 1 : context.sequences / context.graph.mesh().batch_ranks();
}
int64_t rows_of_group(const Context& context, const MoeSpec& spec) {
  return sequences_of_group(context, spec) * context.sequence_length;
}
// Of `rows` those that are tokens.
int64_t tokens_of(const Context& context, int64_t rows) {
  return rows / context.sequence_length * (context.sequence_length - context.idle_rows);
}
ops::IdleRows idle_rows(const Context& context) {
  return {.sequence = context.sequence_length, .count = context.idle_rows};
}
// An encoder's tokens have no targets of their own: those of its decoder's sequence count.
int64_t target_length(const Context& context) {
  return context.target_length > 0 ? context.target_length : context.sequence_length;
}
ValueId whole_targets(Context& context) {
  return whole_sequences(context, context.targets, target_length(context));
}

void add_loss(Context& context, const MoeSpec& spec, const ops::RouterSumsOf& sums, double coefficient,
              int64_t layers) {
  const ValueId sum = shared_sum(context, "balance_loss_sum"), targets = whole_targets(context);
  graph::add_into<ops::BalanceLoss>(
      context.graph, {.probabilities = sums.probabilities, .counts = sums.counts, .targets = targets},
      {.sum = sum},
      {.coefficient = coefficient,
       .k = spec.route.k,
       .rows = sequences_of_group(context, spec) * target_length(context),
       .tokens = layers * tokens_of(context, rows_of_group(context, spec))});
}

// Sums over whole sequences, also where ranks share their tokens: those of the tensor axis have any part of
// the rows, which all of them put together, and those of the context axis a part of each sequence, whose sums
// are added up; but where rows are idle, which are the last of whole sequences.
ops::RouterSumsOf sums_of(Context& context, const MoeSpec& spec, ValueId logits, ValueId ids) {
  Graph& graph = context.graph;
  const auto whole = graph::Placement::replicated();
  const bool in_parts = shares_sequences(context) && context.idle_rows == 0;
  if (context.sequence_parallel) {
    logits = graph::reshard(graph, logits, Axis::kTensor, whole);
    ids = graph::reshard(graph, ids, Axis::kTensor, whole);
  }
  if (!in_parts) {
    logits = whole_sequences(context, logits, context.sequence_length);
    ids = whole_sequences(context, ids, context.sequence_length);
  }
  ops::RouterSumsOf sums = graph::add<ops::RouterSums>(
      graph, {.logits = logits, .ids = ids},
      {.score = spec.route.score, .rows = rows_of_group(context, spec), .idle = idle_rows(context)});
  if (in_parts) {
    sums = {graph::reshard(graph, sums.probabilities, Axis::kContext, whole),
            graph::reshard(graph, sums.counts, Axis::kContext, whole)};
  }
  if (spec.balance == MoeSpec::Balance::kGlobal) {
    const auto counts = graph::add<ops::RunningCounts>(graph, {.counts = context.expert_tokens.back()});
    sums.counts = graph::sum_over_ranks(graph, counts.now);
  }
  return sums;
}

void add_balance(Context& context, const MoeSpec& spec, ValueId logits, const ops::Routed& routed) {
  Graph& graph = context.graph;
  if (spec.balance_coefficient != 0) {
    const ops::RouterSumsOf sums = sums_of(context, spec, logits, routed.ids);
    if (spec.pool_layers) {
      if (context.stages != nullptr) {
        throw ConfigError(
            "[{}] the stages of a pipeline do not have all layers; leave it out, or take pipeline = 1",
            context.words.pool_layers);
      }
      const bool is_first = context.pooled.counts == kNone;
      context.pooled = is_first ? sums
                                : ops::RouterSumsOf{
                                      graph::add_sum(graph, context.pooled.probabilities, sums.probabilities),
                                      graph::add_sum(graph, context.pooled.counts, sums.counts)};
      ++context.pooled_layers;
    } else {
      add_loss(context, spec, sums, spec.balance_coefficient, 1);
    }
  }
}

// Slots that an expert has room for in a group of `rows` tokens.
int64_t room_of_expert(const MoeSpec& spec, int64_t rows, const Words& words) {
  const MoeSpec::Capacity& capacity = spec.capacity;
  if (capacity.slots > 0) return capacity.slots;
  const double share =
      capacity.factor * static_cast<double>(rows * spec.route.k) / static_cast<double>(spec.experts);
  if (share < 1 && capacity.least == 1) {
    throw ConfigError(
        "[{}] of {} tokens with {} slots each, {} of {} experts had room for {:.2g} of them, which is less "
        "than one; take at least {:.3g}, {} = \"micro_batch\", or {}",
        words.capacity_factor, rows, spec.route.k, spec.name, spec.experts, share, capacity.factor / share,
        words.capacity_over, words.min_capacity);
  }
  // What would be whole but for rounding is.
  return std::max(capacity.least, static_cast<int64_t>(std::ceil(share - 1e-9)));
}

// Where the documents of whole sequences begin. With Ulysses every rank has that for its attention.
ValueId begins_of_whole(Context& context) {
  if (context.kv_begin == kNone || context.context_kind == ContextKind::kUlysses) return context.kv_begin;
  return whole_sequences(context, context.kv_begin, context.sequence_length);
}

// The slots that experts have room for. Which these are depends on all tokens of a group. `scores`: by which
// the greatest are kept, where the first are not.
ops::Routed within_capacity(Context& context, const MoeSpec& spec, const ops::Routed& routed,
                            ValueId scores) {
  if (!spec.capacity.bounds() || context.mode == Mode::kCached) return routed;
  Graph& graph = context.graph;
  const bool first = spec.capacity.keep == ops::CapacityAttrs::Keep::kFirst;
  const int64_t sequences = spec.capacity.over_sequence ? 1 : context.sequences / graph.mesh().batch_ranks();
  const int64_t rows = sequences * context.sequence_length;
  ValueId ids = routed.ids;
  if (context.sequence_parallel) {
    ids = graph::reshard(graph, ids, Axis::kTensor, graph::Placement::replicated());
    scores = graph::reshard(graph, scores, Axis::kTensor, graph::Placement::replicated());
  }
  // Ranks that share sequences decide alike over whole ones, and each takes its rows of what is kept.
  const int64_t length = context.sequence_length;
  const ValueId begins = first && spec.capacity.over_sequence ? begins_of_whole(context) : kNone;
  scores = whole_sequences(context, scores, length);
  ids = whole_sequences(context, ids, length);
  const ValueId kept = graph::add<ops::LimitExperts>(
                           graph, {.ids = ids, .weights = scores, .begins = begins},
                           {.experts = spec.experts,
                            .rows = rows,
                            .capacity = room_of_expert(spec, tokens_of(context, rows), context.words),
                            .keep = spec.capacity.keep,
                            .idle = idle_rows(context)})
                           .kept;
  const ValueId held = rows_of_stream(context, held_of_sequences(context, kept, length));
  return {held, graph::add<ops::WeightsOfKept>(graph, {.weights = routed.weights, .ids = held}).kept};
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
  const ValueId gate = router_logits(context, spec.name + ".shared.gate", 1, spec.hidden_size, x);
  const auto score =
      graph::add<ops::Route>(graph, {.logits = gate}, {.score = ops::RouteAttrs::Score::kSigmoid});
  return ops::scale_rows(graph, y, score.weights);
}

}  // namespace

ValueId jittered(Context& context, const MoeSpec& spec, ValueId x) {
  if (spec.jitter == 0 || !context.trains_experts) return x;
  Graph& graph = context.graph;
  const int64_t length = context.sequence_length;
  const ValueId places = graph::add<ops::SamplePlaces>(graph, {.samples = context.samples}, {length}).places;
  const ValueId held = rows_of_stream(context, held_of_sequences(context, places, length));
  return graph::add<ops::Jitter>(graph, {.x = ops::cast(graph, x, DType::kF32), .places = held},
                                 {.eps = spec.jitter, .stream = spec.layer + 1})
      .y;
}

void end_of_experts(Context& context, const MoeSpec& spec) {
  if (context.pooled.counts == kNone) return;
  const auto k = static_cast<double>(spec.route.k);
  add_loss(context, spec, context.pooled, k * spec.balance_coefficient, context.pooled_layers);
}

// Logits in fp32: which experts are chosen hangs on small differences.
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
// does the decoder beside it, since a sum is either whole on each rank or has a term from each.
void add_z_loss_to(Context& context, ValueId logits, ValueId sum, double coefficient) {
  const bool of_encoder = context.target_length > 0, beside_encoder = context.encoder_length > 0;
  if (!of_encoder && !beside_encoder) {
    const ValueId targets = rows_of_stream(context, context.targets);
    return graph::add_into<ops::RouterZLoss>(context.graph, {.logits = logits, .targets = targets},
                                             {.sum = sum}, {.coefficient = coefficient});
  }
  if (context.sequence_parallel)
    logits = graph::reshard(context.graph, logits, Axis::kTensor, graph::Placement::replicated());
  const ValueId targets = whole_targets(context);
  logits = whole_sequences(context, logits, context.sequence_length);
  graph::add_into<ops::RouterZLoss>(
      context.graph, {.logits = logits, .targets = targets}, {.sum = sum},
      {.coefficient = coefficient, .rows = of_encoder ? context.sequence_length : 0});
}

}  // namespace

void count_slots(Context& context, const MoeSpec& spec, ValueId logits, ValueId ids, ValueId targets) {
  context.expert_tokens.push_back(step_metric(context, spec.name + ".router_squares", DType::kF64, 1));
  add_z_loss_to(context, logits, context.expert_tokens.back(), 1);
  context.expert_tokens.push_back(
      step_metric(context, spec.name + ".expert_tokens", DType::kI64, spec.experts));
  ops::count_experts(context.graph, ids, targets, context.expert_tokens.back());
}

void add_z_loss(Context& context, const MoeSpec& spec, ValueId logits) {
  if (spec.z_coefficient != 0)
    add_z_loss_to(context, logits, shared_sum(context, "router_z_loss_sum"), spec.z_coefficient);
}

namespace {

// Each token goes to k experts.
ValueId experts_of_tokens(Context& context, const MoeSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const int64_t width = spec.hidden_size;
  const ValueId read = jittered(context, spec, x);
  const ValueId own = router_logits(context, spec.name + ".router", spec.experts, width, read, spec.biases);
  ValueId logits = own, groups = kNone, bias = kNone;
  if (spec.router == MoeSpec::Router::kTwoLevel) {
    groups = router_logits(context, spec.name + ".router_groups", spec.route.groups, width, read);
    logits = graph::add<ops::TwoLevelLogits>(graph, {.groups = groups, .logits = own}).y;
  }
  if (spec.router_bias) {
    bias = graph.add_parameter(spec.name + ".router.bias", ParameterRole::kRouterBias, {spec.experts},
                               {Init::Kind::kZeros});
  }
  const bool hashes = spec.router == MoeSpec::Router::kHash;
  const ValueId tokens = hashes ? rows_of_stream(context, context.tokens) : kNone;
  ops::Routed routed =
      graph::add<ops::Route>(graph, {.logits = logits, .bias = bias, .tokens = tokens}, spec.route);
  // An encoder's tokens have none of their own.
  const bool has_targets = context.trains_experts && context.target_length == 0;
  const ValueId targets = has_targets ? rows_of_stream(context, context.targets) : kNone;
  if (context.trains_experts) {
    count_slots(context, spec, own, routed.ids, targets);
    add_balance(context, spec, logits, routed);
    // The logits of two levels are normalized already.
    add_z_loss(context, spec, own);
    if (groups != kNone) add_z_loss(context, spec, groups);
    if (bias != kNone) {
      // Before the experts' weights are added: the bias is the last parameter.
      graph.parameters().back().loads = context.expert_tokens.back();
      graph.parameters().back().balance_rate = spec.bias_rate;
    }
  }
  // Loads are those that the router wants: what balances them sees slots that are dropped.
  ValueId scores = routed.weights;
  const bool by_score = spec.capacity.bounds() && spec.capacity.keep == ops::CapacityAttrs::Keep::kGreatest;
  if (by_score && spec.route.normalize && context.mode != Mode::kCached) {
    // Weights that add up to 1 say nothing of how probable a token's experts are: with one a token all are 1.
    ops::RouteAttrs plain = spec.route;
    plain.normalize = false;
    scores = graph::add<ops::Route>(graph, {.logits = logits, .bias = bias, .tokens = tokens}, plain).weights;
  }
  routed = within_capacity(context, spec, routed, scores);
  if (context.trains_experts && spec.capacity.bounds()) {
    context.expert_tokens.push_back(
        step_metric(context, spec.name + ".expert_kept", DType::kI64, spec.experts));
    ops::count_experts(graph, routed.ids, targets, context.expert_tokens.back());
  }
  return experts_of(context, spec, x, routed.ids, routed.weights);
}

ValueId routed_experts(Context& context, const MoeSpec& spec, ValueId x) {
  switch (spec.router) {
    case MoeSpec::Router::kExpertChoice:
      return experts_that_choose(context, spec, x);
    case MoeSpec::Router::kSoft:
      return soft_experts(context, spec, x);
    case MoeSpec::Router::kTopK:
    case MoeSpec::Router::kHash:
    case MoeSpec::Router::kTwoLevel:
      break;
  }
  return experts_of_tokens(context, spec, x);
}

}  // namespace

ValueId moe(Context& context, const MoeSpec& spec, ValueId x) {
  const ValueId y = routed_experts(context, spec, x);
  if (spec.shared_size == 0) return y;
  return graph::add_sum(context.graph, y, shared_expert(context, spec, x));
}

}  // namespace strata::layers
