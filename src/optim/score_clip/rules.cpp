#include <algorithm>
#include <cmath>

#include "graph/reshard.h"
#include "optim/norms.h"
#include "optim/score_clip/score_clip.h"
#include "optim/update_rules.h"

namespace strata::optim {
namespace {

int64_t rows_of(const ScoreClip::Heads& heads) {
  int64_t rows = 0;
  for (const ScoreClip::Run& run : heads.runs) rows += run.rows;
  return heads.count * rows;
}

// Of what each rank has found, all parts and all heads. Values that are placed alike travel together.
std::vector<ValueId> gathered_scores(Graph& graph, std::vector<ValueId> scores) {
  // Ranks of the context axis that have heads for their own rows cut those of a tensor shard: they come first.
  for (const Axis axis : graph::kAllAxes) {
    if (graph.mesh().size(axis) == 1) continue;
    std::vector<bool> is_moved(scores.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      const graph::Placements like = graph.value(scores[i]).placements;
      if (is_moved[i] || like[axis].kind != Placement::Kind::kSharded) continue;
      std::vector<size_t> alike;
      graph::InIds<graph::Reshard> in;
      for (size_t other = i; other < scores.size(); ++other) {
        if (is_moved[other] || graph.value(scores[other]).placements != like) continue;
        alike.push_back(other);
        in.x.push_back(scores[other]);
      }
      const auto moved = add<graph::Reshard>(graph, in, {.axis = axis, .from = like[axis], .to = kR}).moved;
      for (size_t at = 0; at < alike.size(); ++at) {
        scores[alike[at]] = moved[at];
        is_moved[alike[at]] = true;
      }
    }
  }
  return scores;
}

// The factors of the rows that a rank has of the parameter.
ValueId factors_like(Graph& graph, ValueId factors, ValueId parameter) {
  const graph::Sharding& sharding = graph.value(parameter).sharding;
  // The cut along the padding's axis is made after those of all others.
  std::vector<Axis> axes(graph::kAllAxes.begin(), graph::kAllAxes.end());
  if (sharding.padding.axis)
    std::stable_partition(axes.begin(), axes.end(),
                          [&](Axis axis) { return axis != *sharding.padding.axis; });
  for (const Axis axis : axes) {
    if (graph.placement(parameter, axis) != kS0) continue;
    factors = graph::reshard(graph, factors, axis, kS0);
    if (axis == sharding.padding.axis) graph.value(factors).sharding.padding = sharding.padding;
  }
  return factors;
}

}  // namespace

void ScoreFactorsAttrs::describe(graph::AttributeText& to) const {
  to("limit", limit);
  to("kv_heads", kv_heads);
  for (const ScoreClip::Heads& heads : rows) {
    to("heads", heads.count);
    for (const ScoreClip::Run& run : heads.runs) {
      to("rows", run.rows);
      to("share", static_cast<int64_t>(run.share));
    }
  }
}

double head_factor(double limit, double greatest) {
  return std::isfinite(greatest) && greatest > limit ? limit / greatest : 1.0;
}

double share_factor(ScoreClip::Share share, double own, double least) {
  switch (share) {
    case ScoreClip::Share::kNothing:
      return 1;
    case ScoreClip::Share::kQuery:
      return std::min(1.0, own / std::sqrt(least));
    case ScoreClip::Share::kKey:
      return std::sqrt(least);
    case ScoreClip::Share::kAll:
      return own;
  }
  return 1;
}

const OpDef ScoreFactors::def = define<ScoreFactors>({
    .name = "score_factors",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<ScoreFactors> {
      const Shape& scores = node.in.scores->shape;
      const auto& attrs = node.attrs;
      require(node, scores.rank() == 2 && scores[0] > 0, "the scores must be f32[parts, heads]");
      require(node, attrs.kv_heads > 0 && scores[1] % attrs.kv_heads == 0,
              "the query heads must be a multiple of the key-value heads");
      require(node, node.in.decision->shape == Shape{kDecisionBytes}, "decision must be a GuardDecision");
      Spec factors;
      int64_t all = 0;
      for (const ScoreClip::Heads& heads : attrs.rows) {
        require(node, heads.count == scores[1] || heads.count == attrs.kv_heads,
                "rows must be of all query heads or of all key-value heads");
        factors.segments.push_back(rows_of(heads));
        all += factors.segments.back();
      }
      factors.shape = {all};
      factors.segments_along = 0;
      if (factors.segments.size() == 1) factors.segments.clear();
      return {.factors = factors};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
});

const OpDef ScaleRows::def = define<ScaleRows>({
    .name = "scale_head_rows",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<ScaleRows> {
      const Shape& shape = node.in.parameter->shape;
      require(node, shape.rank() == 1 || shape.rank() == 2, "the parameter must be a matrix or a vector");
      require_value(node.untyped(), *node.in.factors, {shape[0]}, "the factors");
      return {.parameter = Spec::like(*node.in.parameter)};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 1); },
    .placements = [](const auto& node, Axis) -> Splits<ScaleRows> {
      Splits<ScaleRows> splits{{{.parameter = kS0, .factors = kS0}, {.parameter = kS0}}};
      const Placement columns = Placement::sharded(1);
      if (node.in.parameter->shape.rank() == 2)
        splits.push_back({{.parameter = columns, .factors = kR}, {.parameter = columns}});
      return splits;
    },
    .in_place = {{"parameter", "parameter"}},
});

const OpDef ScoreSummary::def = define<ScoreSummary>({
    .name = "score_summary",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<ScoreSummary> {
      for (const graph::Ref& scores : node.in.scores)
        require(node, scores->shape.rank() == 2, "the scores must be f32[parts, heads]");
      require(node, node.in.decision->shape == Shape{kDecisionBytes}, "decision must be a GuardDecision");
      return {.summary = {DType::kF64, {node.attrs.stages, kScoreColumns}}};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 1); },
});

void clip_scores(Graph& graph, ValueId decision, double limit) {
  std::vector<ValueId> found;  // of each block
  for (const graph::Parameter& parameter : graph.parameters()) {
    const ValueId scores = parameter.score_clip.scores;
    if (scores != kNone && std::find(found.begin(), found.end(), scores) == found.end())
      found.push_back(scores);
  }
  const std::vector<ValueId> scores = gathered_scores(graph, found);
  for (const graph::Parameter& parameter : graph.parameters()) {
    const ScoreClip& clip = parameter.score_clip;
    if (clip.scores == kNone) continue;
    const auto block = std::find(found.begin(), found.end(), clip.scores) - found.begin();
    const ValueId factors =
        add<ScoreFactors>(graph, {.scores = scores[static_cast<size_t>(block)], .decision = decision},
                          {.limit = clip.limit, .kv_heads = clip.kv_heads, .rows = clip.rows})
            .factors;
    add_into<ScaleRows>(
        graph, {.parameter = parameter.value, .factors = factors_like(graph, factors, parameter.value)},
        {.parameter = parameter.value});
  }
  const ValueId own =
      add<ScoreSummary>(
          graph,
          {.scores = {scores.begin(), scores.end()}, .decision = decision, .rank = graph::rank_block(graph)},
          {.limit = limit, .stages = graph.mesh().size(Axis::kPipeline)})
          .summary;
  const ValueId summary = sum_over_stages(graph, own);
  Value& value = graph.value(summary);
  value.name = "score_summary";
  value.role = graph::Role::kStep;
  value.producer = kNone;
  graph.set_metric(graph::MetricKind::kScoreClip, summary);
}

}  // namespace strata::optim
