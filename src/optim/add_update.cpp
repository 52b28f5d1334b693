// The update of a model's parameters, built into its graph.
#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "optim/norms.h"
#include "optim/optimizer.h"
#include "optim/router_bias/router_bias.h"
#include "optim/row_clip/row_clip.h"
#include "optim/scalars/scalars.h"
#include "optim/score_clip/score_clip.h"
#include "optim/stored/stored.h"
#include "optim/update_rules.h"

namespace strata::optim {

using graph::Role;

namespace {

ValueId add_named(Graph& graph, std::string name, DType dtype, Shape shape, Role role) {
  Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = shape;
  value.role = role;
  return graph.add_value(std::move(value));
}

// Consecutive rows of a parameter and their rule.
struct Piece {
  int64_t first = 0, rows = 0;
  UpdateRule rule;
  int64_t end() const { return first + rows; }
};

// What ranks do together; nullptr: nothing. Where memory has fewer bits, each rank updates its own rows.
auto add_sharded_of(const UpdateRule& rule) {
  return rule.storage.is_plain() ? rule.optimizer.definition().add_sharded : nullptr;
}
bool is_own(const UpdateRule& rule, const Graph& graph, const Value& parameter) {
  const Definition& definition = rule.optimizer.definition();
  return !rule.storage.is_plain() || definition.is_own == nullptr || definition.is_own(graph, parameter);
}
bool shares_states(const UpdateRule& a, const UpdateRule& b) {
  return &a.optimizer.definition() == &b.optimizer.definition() && a.storage == b.storage;
}

std::vector<Piece> tensors_of(const ParameterRule& rule, const std::string& name, const Shape& shape) {
  std::vector<Piece> tensors;
  int64_t first = 0;
  for (const TensorRule& tensor : rule.tensors) {
    Piece piece{first, tensor.rows > 0 ? tensor.rows : shape[0] - first, tensor.rule};
    if (const auto instead = piece.rule.optimizer.definition().instead; instead != nullptr) {
      const Optimizer given = piece.rule.optimizer;
      piece.rule.optimizer = instead(given, with_rows(shape, piece.rows)).value_or(given);
    }
    if (piece.rule.storage.moments == DType::kE4M3 &&
        with_rows(shape, piece.rows).elements() < kLeastMomentsInBlocks)
      piece.rule.storage.moments = DType::kF32;
    first = piece.end();
    tensors.push_back(piece);
  }
  STRATA_CHECK(first == shape[0], "{} has {} rows and rules for {}", name, shape[0], first);
  return tensors;
}

// Cuts row ranges at the ends of the parameter's segments: all of them, or those with separate factors.
std::vector<Piece> cut_at_segments(const std::vector<Piece>& pieces, const Value& parameter,
                                   const std::vector<double>& scales, bool everywhere) {
  std::vector<Piece> out;
  for (const Piece& piece : pieces) {
    int64_t begin = 0;
    const std::vector<int64_t> whole{parameter.shape[0]};
    const auto& segments = parameter.segments.empty() ? whole : parameter.segments;
    for (size_t i = 0; i < segments.size(); ++i) {
      const int64_t first = std::max(begin, piece.first), end = std::min(begin + segments[i], piece.end());
      begin += segments[i];
      if (first >= end) continue;
      UpdateRule rule = piece.rule;
      if (!scales.empty()) {
        rule.lr_scale *= scales[i];
        rule.weight_decay /= scales[i];
      }
      if (!everywhere && !out.empty() && out.back().end() == first && out.back().rule == rule) {
        out.back().rows += end - first;
      } else {
        out.push_back({first, end - first, rule});
      }
    }
  }
  return out;
}

// Counts of the segments that are cut as one, for those among these rows.
std::vector<int64_t> joined_within(const Value& parameter, const Piece& rows) {
  std::vector<int64_t> counts;
  auto segment = parameter.segments.begin();
  int64_t begin = 0;
  for (const int64_t count : parameter.sharding.padding.joined) {
    const int64_t end = std::accumulate(segment, segment + count, begin);
    if (begin >= rows.first && end <= rows.end()) counts.push_back(count);
    segment += count;
    begin = end;
  }
  return counts;
}

// Copies to a state, which has entries for each of these rows of the parameter, the placements and segments.
void lie_as(const Value& parameter, const Piece& rows, Value& state) {
  state.placements = parameter.placements;
  for (const Axis axis : graph::kAllAxes) {
    const Placement placement = state.placements[axis];
    if (placement.kind == Placement::Kind::kSharded && placement.dim >= state.shape.rank())
      state.placements.set(axis, Placement::replicated());
  }
  state.sharding.padding = parameter.sharding.padding;
  state.sharding.padding.joined = joined_within(parameter, rows);
  state.sharding.distributed_axes = parameter.sharding.distributed_axes;
  state.segments_along = parameter.segments_along;
  int64_t begin = 0;
  for (const int64_t segment : parameter.segments) {
    const int64_t first = std::max(begin, rows.first), end = std::min(begin + segment, rows.end());
    if (first < end) state.segments.push_back(end - first);
    begin += segment;
  }
}

// The same for a state in a separate order, of a parameter whose shards end at its blocks.
void lie_in_shards(const Value& parameter, const StateSpec& spec, Value& state) {
  const Axis axis = parameter.sharding.padding.axis.value();
  state.placements.set(axis, parameter.placements[axis]);
  state.sharding.padding = parameter.sharding.padding;
  state.sharding.padding.joined.clear();  // it is one
  if (spec.block > 0)
    state.sharding.padding.alignment =
        parameter.sharding.padding.alignment * (parameter.shape.elements() / parameter.shape[0]) / spec.block;
}

class UpdateBuilder {
 public:
  UpdateBuilder(Graph& graph, UpdateGraph& update) : graph_(graph), update_(update) {}

  void add(const graph::Parameter& of, ValueId gradient, const ParameterRule& rule) {
    const ValueId parameter = of.value;
    const Value& value = graph_.value(parameter);
    const auto tensors = tensors_of(rule, value.name, value.shape);
    STRATA_CHECK(rule.part_scales.empty() || rule.part_scales.size() == value.segments.size(),
                 "{} has {} parts and {} learning rates", value.name, value.segments.size(),
                 rule.part_scales.size());
    if (is_distributed_by_tensors(value, tensors)) return add_distributed(of, gradient, tensors);
    for (size_t i = 0; i < tensors.size();) {
      size_t end = i + 1;
      if (stored_unit(tensors[i].rule) != Definition::Unit::kTensor) {
        while (end < tensors.size() && shares_states(tensors[end].rule, tensors[i].rule)) ++end;
      }
      add_run(of, gradient,
              {tensors.begin() + static_cast<std::ptrdiff_t>(i),
               tensors.begin() + static_cast<std::ptrdiff_t>(end)},
              rule.part_scales);
      i = end;
    }
  }

  // After all parameters: the updates that ranks do together.
  void finish() {
    for (const Definition* definition : optimizers()) {
      for (const ValueId scalars : {update_.scalars, update_.embedding_scalars}) {
        const auto found = sharded_.find({definition, scalars});
        if (found != sharded_.end()) definition->add_sharded(graph_, scalars, found->second);
      }
    }
  }

 private:
  // Neighbouring tensors that share states.
  void add_run(const graph::Parameter& of, ValueId gradient, std::vector<Piece> run,
               const std::vector<double>& part_scales) {
    const ValueId parameter = of.value;
    const Value& value = graph_.value(parameter);
    const UpdateRule like = run.front().rule;  // but for rates and decay
    const Definition& definition = like.optimizer.definition();
    const Definition::Unit unit = stored_unit(like);
    const Piece whole{run.front().first, run.back().end() - run.front().first, {}};
    STRATA_CHECK(part_scales.empty() || unit == Definition::Unit::kRows,
                 "{} has parts with separate learning rates, which {} does not support", value.name,
                 definition.name);
    const bool is_cut = graph::is_sharded(graph_, value);
    const auto add_sharded = add_sharded_of(like);
    // Each rank has a part of every block, or blocks are not distributed.
    const bool shares_parts = definition.is_own == nullptr || value.sharding.distributed_axes.empty();
    if (unit != Definition::Unit::kRows && (add_sharded == nullptr || !shares_parts))
      require_whole(value, like);
    const bool together = add_sharded != nullptr && is_cut &&
                          (definition.is_own == nullptr || !definition.is_own(graph_, value));
    std::vector<ValueId> outputs{parameter};
    for (const StateSpec& spec : stored_states(like, with_rows(value.shape, whole.rows))) {
      std::string name = fmt::format("{}.{}", spec.name, value.name);
      if (whole.rows != value.shape[0]) name += fmt::format("[{}:{}]", whole.first, whole.end());
      const ValueId state = add_named(graph_, std::move(name), spec.dtype, spec.shape, Role::kState);
      // What blocks have is on every rank where these are not one rank's.
      const bool in_shards = is_cut && !spec.whole && !(together && spec.block > 0);
      if (spec.layout == StateLayout::kElements ||
          (in_shards && (spec.layout == StateLayout::kRows || together)))
        lie_as(value, whole, graph_.value(state));
      else if (spec.layout == StateLayout::kTensor && in_shards)
        lie_in_shards(value, spec, graph_.value(state));
      update_.states.push_back(
          {parameter, state, std::string(spec.name), whole.first, whole.rows, spec.layout});
      outputs.push_back(state);
    }
    std::vector<ValueId> inputs = outputs;
    inputs.push_back(gradient);
    const ValueId scalars =
        of.role == graph::ParameterRole::kEmbedding ? update_.embedding_scalars : update_.scalars;
    inputs.push_back(scalars);
    add_rank(like, inputs);
    if (unit != Definition::Unit::kTensor)
      run = cut_at_segments(run, value, part_scales, unit == Definition::Unit::kMatrix);
    // Matrices that ranks have whole: each rank updates its own, which are cut alike on all of them.
    const int64_t ranks = unit == Definition::Unit::kMatrix ? ranks_of_whole_parts(value) : 1;
    const int64_t all_rows = value.shape[0] / ranks;
    require_one_rule(value, definition, run, ranks);
    std::erase_if(run, [&](const Piece& piece) { return ranks > 1 && piece.first >= all_rows; });
    for (const Piece& piece : run) {
      const Shape rows = with_rows(value.shape, piece.rows);
      UpdateAttrs attrs = attrs_of(of, piece.rule, rows);
      if (piece.rows != value.shape[0]) {
        attrs.first_row = piece.first;
        attrs.rows = piece.rows;
        attrs.of_rows = all_rows;
        attrs.state_row = piece.first - whole.first;
        attrs.state_rows = whole.rows / ranks;
      }
      if (together && ranks == 1) {
        sharded_[{&definition, scalars}].push_back(
            {parameter, gradient, {outputs.begin() + 1, outputs.end()}, attrs, of.layer});
        continue;
      }
      graph_.add_node_into(stored_op(like, rows), inputs, outputs, attrs);
    }
  }

  // What stochastic rounding reads besides the scalars.
  void add_rank(const UpdateRule& rule, std::vector<ValueId>& inputs) {
    if (rule.storage.is_plain()) return;
    inputs.push_back(rule.storage.is_stochastic() ? graph::rank_block(graph_) : kNone);
  }

  UpdateAttrs attrs_of(const graph::Parameter& of, const UpdateRule& rule, const Shape& rows) const {
    const Definition& definition = rule.optimizer.definition();
    UpdateAttrs attrs{definition.applied != nullptr ? definition.applied(rule, rows) : rule};
    if (!rule.storage.is_stochastic()) return attrs;
    const std::string& name = of.part.of.empty() ? graph_.value(of.value).name : of.part.of;
    attrs.stream = static_cast<uint32_t>(hash64(name));
    attrs.whole_row = of.part.first_row;
    return attrs;
  }

  // The number of ranks among which whole parts are distributed, if nothing else cuts them; otherwise 1.
  int64_t ranks_of_whole_parts(const Value& value) const {
    int64_t ranks = 1;
    for (const Axis axis : graph::kAllAxes) {
      const int64_t size = graph_.mesh().size(axis);
      if (size == 1 || value.placements[axis].kind != Placement::Kind::kSharded) continue;
      const auto& distributed = value.sharding.distributed_axes;
      if (std::find(distributed.begin(), distributed.end(), axis) == distributed.end()) return 1;
      ranks *= size;
    }
    return ranks;
  }

  // Whether each of the ranks among which parts are distributed has the same number of whole tensors with the
  // same rows, under one rule with separate states for each tensor.
  bool is_distributed_by_tensors(const Value& value, const std::vector<Piece>& tensors) const {
    const int64_t ranks = ranks_of_whole_parts(value);
    const auto count = std::ssize(tensors);
    if (ranks == 1 || count % ranks != 0 || stored_unit(tensors[0].rule) != Definition::Unit::kTensor)
      return false;
    const auto own = static_cast<size_t>(count / ranks);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].rows != tensors[i % own].rows || tensors[i].rule != tensors[0].rule) return false;
    }
    return true;
  }

  // Each rank updates its own tensors: a node that describes one tensor holds for one on every rank.
  void add_distributed(const graph::Parameter& of, ValueId gradient, const std::vector<Piece>& tensors) {
    const ValueId parameter = of.value;
    const Value value = graph_.value(parameter);
    const int64_t ranks = ranks_of_whole_parts(value), own_rows = value.shape[0] / ranks;
    for (size_t i = 0; i < tensors.size() / static_cast<size_t>(ranks); ++i) {
      const Piece& tensor = tensors[i];
      const Shape rows = with_rows(value.shape, tensor.rows);
      std::vector<ValueId> outputs{parameter};
      for (const StateSpec& spec : stored_states(tensor.rule, rows)) {
        const ValueId id =
            add_named(graph_, fmt::format("{}.{}[{}:{}]", spec.name, value.name, tensor.first, tensor.end()),
                      spec.dtype, with_rows(spec.shape, ranks * spec.shape[0]), Role::kState);
        Value& state = graph_.value(id);
        for (const Axis axis : value.sharding.distributed_axes)
          state.placements.set(axis, value.placements[axis]);
        state.sharding.distributed_axes = value.sharding.distributed_axes;
        state.segments.assign(static_cast<size_t>(ranks), spec.shape[0]);
        state.segments_along = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          update_.states.push_back({parameter, id, std::string(spec.name), rank * own_rows + tensor.first,
                                    tensor.rows, spec.layout, rank, ranks});
        }
        outputs.push_back(id);
      }
      std::vector<ValueId> inputs = outputs;
      inputs.insert(inputs.end(), {gradient, update_.scalars});
      add_rank(tensor.rule, inputs);
      UpdateAttrs attrs = attrs_of(of, tensor.rule, rows);
      attrs.first_row = tensor.first;
      attrs.rows = attrs.state_rows = tensor.rows;
      attrs.of_rows = own_rows;
      attrs.distributed = ranks;
      graph_.add_node_into(stored_op(tensor.rule, rows), inputs, outputs, attrs);
    }
  }

  // Ranks among which parts are distributed run one program, so that all parts are updated alike.
  static void require_one_rule(const Value& value, const Definition& definition,
                               const std::vector<Piece>& run, int64_t ranks_of_whole_parts) {
    const bool is_one = run.size() == 1 && run.front().rows == value.shape[0];
    const bool alike = std::all_of(run.begin(), run.end(),
                                   [&](const Piece& piece) { return piece.rule == run.front().rule; });
    const bool is_all = run.front().first == 0 && run.back().end() == value.shape[0];
    if (value.sharding.distributed_axes.empty() || is_one || (ranks_of_whole_parts > 1 && alike && is_all))
      return;
    throw ConfigError(
        "[optimizer] {} updates each expert of {} separately, but parallel.expert distributes them over ranks; "
        "use adamw or lion, or parallel.expert = 1, or one [[optimizer.group]] for all experts of a layer and "
        "nothing else that cuts them (expert_tensor = 1, no zero over a shard that does not distribute them)",
        definition.name, value.name);
  }

  // But for the axis whose shards end where the states' blocks do.
  void require_whole(const Value& value, const UpdateRule& rule) const {
    const std::string advice = rule.storage.moments == DType::kE4M3
                                   ? "optimizer.state_dtype = \"bf16\""
                                   : "take adamw, lion, muon or adafactor for it";
    for (const Axis axis : graph::kAllAxes) {
      const int64_t ranks = graph_.mesh().size(axis);
      if (ranks == 1 || axis == value.sharding.padding.axis ||
          value.placements[axis].kind != Placement::Kind::kSharded)
        continue;
      throw ConfigError(
          "[optimizer] {} updates {} in blocks, which parallel.{} = {} would cut; {}, or parallel.{} = 1",
          rule.optimizer.definition().name, value.name, name_of(axis), ranks, advice, name_of(axis));
    }
  }

  Graph& graph_;
  UpdateGraph& update_;
  std::map<std::pair<const Definition*, ValueId>, std::vector<ShardedRows>> sharded_;  // by their scalars
};

// The gradient of a parameter on all that hold it.
ValueId reduced_gradient(Graph& graph, const graph::Parameter& parameter) {
  if (!parameter.sharing.holders.empty()) graph::set_partial(graph, parameter.gradient, Axis::kPipeline);
  return graph::reduce_like(graph, parameter.gradient, parameter.value, parameter.sharing.holders);
}

}  // namespace

graph::Padding shard_padding(const Graph& graph, const ParameterRule& rule, const Value& parameter) {
  graph::Padding padding;
  bool joins = false;
  size_t segment = 0;
  int64_t begin = 0;
  for (const Piece& piece : tensors_of(rule, parameter.name, parameter.shape)) {
    const Shape rows = with_rows(parameter.shape, piece.rows);
    // Where ranks share blocks anyway, shards may end anywhere.
    const bool ends_with_blocks = is_own(piece.rule, graph, parameter);
    if (ends_with_blocks) padding.alignment = std::lcm(padding.alignment, stored_alignment(piece.rule, rows));
    const auto states = stored_states(piece.rule, rows);
    const bool by_tensor =
        ends_with_blocks && std::any_of(states.begin(), states.end(), [](const StateSpec& state) {
          return state.layout == StateLayout::kTensor && !state.whole;
        });
    int64_t count = 0;
    for (; segment < parameter.segments.size() && begin < piece.end(); ++segment, ++count)
      begin += parameter.segments[segment];
    joins = joins || (by_tensor && count > 1);
    padding.joined.insert(padding.joined.end(), by_tensor ? 1 : static_cast<size_t>(count),
                          by_tensor ? count : 1);
  }
  if (!joins) padding.joined.clear();
  return padding;
}

UpdateGraph add_update(Graph& graph, ValueId token_count, ValueId loss_sum, const RuleOf& rule_of,
                       ValueId loss_scale, double score_limit) {
  graph.set_phase(graph::Phase::kUpdate);
  UpdateGraph update;
  update.hyper = add_named(graph, "hyper", DType::kU8, {kHyperBytes}, Role::kStep);
  update.updates = add_named(graph, "updates", DType::kI64, {1}, Role::kState);
  graph.set_metric(graph::MetricKind::kHyper, update.hyper);
  graph.set_metric(graph::MetricKind::kUpdates, update.updates);
  update.history = add_named(graph, "guard_history", DType::kU8, {kHistoryBytes}, Role::kStep);
  update.decision = add_named(graph, "decision", DType::kU8, {kDecisionBytes}, Role::kStep);
  graph.set_metric(graph::MetricKind::kGuardHistory, update.history);
  graph.set_metric(graph::MetricKind::kDecision, update.decision);
  update.scalars = add_named(graph, "scalars", DType::kU8, {kScalarBytes}, Role::kStep);
  update.embedding_scalars = add_named(graph, "embedding_scalars", DType::kU8, {kScalarBytes}, Role::kStep);
  update.grad_norm = add_named(graph, "grad_norm", DType::kF32, {1}, Role::kStep);
  update.param_norm = add_named(graph, "param_norm", DType::kF32, {1}, Role::kStep);
  graph.set_metric(graph::MetricKind::kGradNorm, update.grad_norm);
  graph.set_metric(graph::MetricKind::kParamNorm, update.param_norm);

  const std::vector<ValueId> sums = graph::sum_over_ranks(graph, {token_count, loss_sum});
  const ValueId tokens = sum_over_stages(graph, sums[0]), loss = sum_over_stages(graph, sums[1]);
  std::vector<ValueId> gradients, counted_gradients, counted_parameters;
  for (const auto& parameter : graph.parameters()) {
    if (!parameter.is_trained()) {
      gradients.push_back(kNone);
      continue;
    }
    STRATA_CHECK(parameter.gradient != kNone, "{} has no gradient", graph.value(parameter.value).name);
    graph.set_layer(parameter.layer);
    gradients.push_back(reduced_gradient(graph, parameter));
    if (!parameter.sharing.is_first_holder) continue;
    counted_gradients.push_back(gradients.back());
    counted_parameters.push_back(parameter.value);
  }
  graph.set_layer(kNone);
  const std::vector<ValueId> partials = squares_of(graph, counted_gradients, "no_gradients");
  add_into<StepScalars>(graph,
                        {.hyper = update.hyper,
                         .token_count = tokens,
                         .loss_sum = loss,
                         .updates = update.updates,
                         .history = update.history,
                         .partials = {partials.begin(), partials.end()},
                         .loss_scale = loss_scale},
                        {.scalars = update.scalars,
                         .embedding_scalars = update.embedding_scalars,
                         .norm = update.grad_norm,
                         .updates = update.updates,
                         .history = update.history,
                         .decision = update.decision,
                         .loss_scale = loss_scale});

  UpdateBuilder builder(graph, update);
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const graph::Parameter& parameter = graph.parameters()[i];
    if (!parameter.is_trained()) {
      if (!parameter.is_frozen) balance_router(graph, parameter, update.scalars);
      continue;
    }
    const ParameterRule rule = rule_for(graph, parameter, rule_of);
    if (rule.row_clip > 0) {
      graph.set_layer(parameter.layer);
      clip_rows(graph, parameter.value, gradients[i], update.scalars, rule.row_clip);
      graph.set_layer(kNone);
    }
    builder.add(parameter, gradients[i], rule);
  }
  builder.finish();
  if (score_limit > 0) clip_scores(graph, update.decision, score_limit);
  const std::vector<ValueId> weights = squares_of(graph, counted_parameters, "no_parameters");
  add_into<RootOfSum>(graph, {.partials = {weights.begin(), weights.end()}}, {.norm = update.param_norm});
  graph.set_phase(graph::Phase::kForward);
  return update;
}

}  // namespace strata::optim
