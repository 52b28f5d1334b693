#include "ops/expert_dispatch/expert_dispatch.h"

#include <algorithm>
#include <cmath>

#include "ops/expert_dispatch/way.h"
#include "ops/rules.h"

namespace strata::ops {

void DispatchAttrs::describe(graph::AttributeText& to) const {
  to("experts", experts);
  to("k", k);
  to("ranks", ranks);
  if (node_ranks > 0) to("node_ranks", node_ranks);
  to("tokens", tokens);
  to("rows", capacity.rows);
  to("slots", capacity.slots);
  for (const Axis axis : axes) to("axis", name_of(axis));
  for (const Axis axis : summed_axes) to("summed_axis", name_of(axis));
  if (parts > 1) to("parts", parts);
  if (token_parts > 1) to("token_parts", token_parts);
}

Way::Way(const DispatchAttrs& attrs) {
  const auto take = [&](int64_t count) { return std::exchange(words, words + count); };
  int64_t entries = attrs.tokens, entry_slots = attrs.k;
  const auto add = [&](const Hop& hop, bool is_last) {
    HopWay of{.hop = hop, .all_entries = entries, .entry_slots = entry_slots};
    of.entries = take(hop.all_rows());
    of.counts = take(hop.peers);
    of.back_begin = take(entries);
    of.back_end = take(entries);
    of.back = take(entries * std::min(entry_slots, hop.peers));
    of.arrived_counts = take(hop.peers);
    if (!is_last) of.records = take(hop.all_rows() * hop.words());
    entries = hop.all_rows();
    entry_slots = hop.hits;
    hops.push_back(of);
  };
  const int64_t own = attrs.own_experts();
  if (attrs.by_nodes()) {
    const int64_t nodes = attrs.ranks / attrs.node_ranks, of_node = attrs.node_ranks * own;
    add({nodes, std::min(attrs.tokens, attrs.node_ranks * attrs.capacity.rows), of_node,
         std::min(attrs.k, of_node)},
        false);
    add({attrs.node_ranks, nodes * attrs.capacity.rows, own, attrs.hits()}, true);
  } else {
    add({attrs.ranks, attrs.capacity.rows, own, attrs.hits()}, true);
  }
  places = take(attrs.rows());
}

namespace {

// The share of tokens that any of a rank's experts gets when each token's k experts are any.
double share_of_tokens(int64_t k, int64_t experts, int64_t ranks) {
  double none = 1;  // C(E - E/R, k) / C(E, k)
  const int64_t others = experts - experts / ranks;
  for (int64_t i = 0; i < k; ++i)
    none *= std::max(0.0, static_cast<double>(others - i)) / static_cast<double>(experts - i);
  return 1 - none;
}

PassCapacity pass_capacity_for(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor,
                               double deviations) {
  const int64_t hits = std::min(k, experts / ranks);
  const auto fit = [&](double balanced, int64_t least, int64_t most) {
    const double wanted = std::ceil(factor * balanced + deviations * std::sqrt(balanced));
    return wanted >= static_cast<double>(most) ? most : std::max(least, static_cast<int64_t>(wanted));
  };
  const auto n = static_cast<double>(tokens);
  return {fit(n * share_of_tokens(k, experts, ranks), std::min<int64_t>(1, tokens), tokens),
          fit(n * static_cast<double>(k) / static_cast<double>(ranks), std::min(hits, tokens * hits),
              tokens * hits)};
}

}  // namespace

PassCapacity pass_capacity(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor) {
  return pass_capacity_for(tokens, k, experts, ranks, factor, 0);
}
PassCapacity pass_capacity(int64_t tokens, int64_t k, int64_t experts, int64_t ranks) {
  return pass_capacity_for(tokens, k, experts, ranks, 1.25, 4);
}

namespace {

// --- Rules

template <typename Op>
void require_way(const View<Op>& node) {
  require(node, node.in.way->shape == Shape{node.attrs.parts * Way(node.attrs).words},
          "the way must be one of these attributes");
}
Shape rows_shape(const DispatchAttrs& attrs, int64_t width) {
  return {attrs.parts * attrs.rows(), width};
}
template <typename Op>
bool has_row_a_token(const View<Op>& node, const Value& of) {
  return of.shape.rank() == 2 && of.shape[0] == node.attrs.token_parts * node.attrs.tokens;
}

template <typename Op>
DispatchAttrs of_a_rank(const View<Op>& node) {
  DispatchAttrs attrs = node.attrs;
  attrs.parts = attrs.token_parts = 1;
  return attrs;
}

bool is_summed(const DispatchAttrs& attrs, Axis axis) {
  return std::find(attrs.summed_axes.begin(), attrs.summed_axes.end(), axis) != attrs.summed_axes.end();
}

// Rows that a rank sends to others on one way, where experts are equally busy.
double rows_sent(const DispatchAttrs& attrs) {
  const auto to_each = [&](int64_t places) {
    return static_cast<double>(attrs.tokens) * share_of_tokens(attrs.k, attrs.experts, places);
  };
  const auto ranks = static_cast<double>(attrs.ranks);
  if (!attrs.by_nodes()) return to_each(attrs.ranks) * (ranks - 1);
  // To each other node, and what has come on to the other ranks of this one.
  const auto of_node = static_cast<double>(attrs.node_ranks);
  return to_each(attrs.ranks / attrs.node_ranks) * (ranks / of_node - 1) +
         to_each(attrs.ranks) * ranks * (of_node - 1) / of_node;
}

// The ranks that exchange rows of this size.
graph::OpRanks ranks_of(const DispatchAttrs& attrs, int64_t row_bytes) {
  return {attrs.axes, attrs.by_nodes() ? attrs.node_ranks : 0, attrs.rows() * row_bytes,
          rows_sent(attrs) * static_cast<double>(row_bytes)};
}
int64_t row_bytes(const Value& rows) {
  return rows.shape[1] * size_of(rows.dtype);
}

// The cost of rows that are read and written once.
Cost moved(const Value& rows) {
  return {0, 2.0 * static_cast<double>(rows.bytes())};
}

}  // namespace

void OwnExpertsAttrs::describe(graph::AttributeText& to) const {
  to("experts", experts);
  for (const Cut& one : axes) {
    to(one.summed ? "summed_axis" : "axis", name_of(one.axis));
    to("ranks", one.ranks);
  }
}

int32_t OwnExpertsAttrs::own(int32_t id, const graph::Coordinates& rank) const {
  if (id < 0) return -1;
  int64_t blocks = 1;
  for (const Cut& one : axes) blocks *= one.ranks;
  const int64_t each = experts / blocks;
  int64_t block = id / each, among = 0, stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t place = block % axes[i].ranks;
    block /= axes[i].ranks;
    if (axes[i].summed) {
      if (place != rank[axes[i].axis]) return -1;
      continue;
    }
    among += place * stride;
    stride *= axes[i].ranks;
  }
  return static_cast<int32_t>(among * each + id % each);
}

const OpDef OwnExperts::def = define<OwnExperts>({
    .name = "own_experts",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<OwnExperts> {
      require(node, node.in.ids->shape.rank() == 2, "ids must be i32[N, k]");
      require(node, node.in.rank->shape == Shape{static_cast<int64_t>(graph::kAxes)},
              "the per-rank constants must be i32[axes]");
      return {.own = {DType::kI32, node.in.ids->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<OwnExperts> {
      for (const auto& one : node.attrs.axes)
        if (one.axis == axis && one.summed) return {{{.ids = kR, .rank = kR}, {.own = kP}}};
      return {{{.ids = kS0, .rank = kR}, {.own = kS0}}};
    },
});

const OpDef PlanDispatch::def = define<PlanDispatch>({
    .name = "plan_dispatch",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<PlanDispatch> {
      const DispatchAttrs& attrs = node.attrs;
      const Shape chosen{attrs.token_parts * attrs.tokens, attrs.k};
      require(node, node.in.ids->shape == chosen, "ids must be i32[N, k]");
      require(node, node.in.weights->shape == chosen, "weights must be f32[N, k]");
      require(node, attrs.ranks >= 1 && attrs.experts % attrs.ranks == 0,
              "all ranks must have the same number of experts");
      require(node, std::min(attrs.k, attrs.ranks) <= kMostRanksOfToken, "a token goes to too many ranks");
      return {.way = {DType::kI32, {attrs.parts * Way(attrs).words}},
              .ids = {DType::kI32, {attrs.parts * attrs.slots(), 1}},
              .offsets = {DType::kI32, {attrs.parts * (attrs.rows() + 1)}},
              .weights = {DType::kF32, {attrs.parts * attrs.slots()}},
              .next = {DType::kI32, {attrs.parts}, {}, !node.in.begin}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis axis) -> Splits<PlanDispatch> {
      const bool summed = is_summed(node.attrs, axis);
      return {{{.ids = summed ? kP : kS0, .weights = summed ? kR : kS0, .begin = kS0},
               {.way = kS0, .ids = kS0, .offsets = kS0, .weights = kS0, .next = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId grads = builder.gradient_of(node.out.weights);
          if (grads == kNone || !builder.wants(node.in.weights)) return;
          builder.add_gradient(
              node.in.weights,
              add<CombineSlotGrads>(
                  builder.graph(),
                  {.grads = grads, .ids = node.in.ids, .offsets = node.out.offsets, .way = node.out.way},
                  node.attrs)
                  .dweights);
        },
    .localize = of_a_rank<PlanDispatch>,
    .ranks = [](const auto& node) { return ranks_of(node.attrs, 4 * Hop::words_of(node.attrs.hits())); },
});

const OpDef DispatchRows::def = define<DispatchRows>({
    .name = "dispatch_rows",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<DispatchRows> {
      require(node, has_row_a_token(node, *node.in.x), "x must have a row a token");
      require_way(node);
      const graph::Ref& scales = node.in.scales;
      require(node, !scales || has_row_a_token(node, *scales), "scales must have a row a token");
      const auto arrived = [&](const Value& of) -> Spec {
        return {of.dtype, rows_shape(node.attrs, of.shape[1])};
      };
      return {.rows = arrived(*node.in.x), .row_scales = scales ? arrived(*scales) : Spec::none()};
    },
    .cost =
        [](const auto& node) {
          Cost cost = moved(*node.out.rows);
          if (node.out.row_scales) cost.bytes += moved(*node.out.row_scales).bytes;
          return cost;
        },
    .placements = [](const auto& node, Axis axis) -> Splits<DispatchRows> {
      const Placement of_tokens = is_summed(node.attrs, axis) ? kR : kS0;
      return {{{.x = of_tokens, .way = kS0, .scales = of_tokens}, {.rows = kS0, .row_scales = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          builder.add_gradient(
              node.in.x,
              add<CombineRows>(builder.graph(),
                               {.rows = builder.gradient_of(node.out.rows), .way = node.in.way}, node.attrs)
                  .y);
        },
    .localize = of_a_rank<DispatchRows>,
    .queue = graph::Queue::kCommunication,
    .ranks =
        [](const auto& node) {
          const int64_t of_scales = node.in.scales ? row_bytes(*node.in.scales) : 0;
          return ranks_of(node.attrs, row_bytes(*node.in.x) + of_scales);
        },
});

const OpDef CombineRows::def = define<CombineRows>({
    .name = "combine_rows",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CombineRows> {
      const Value& rows = *node.in.rows;
      require(node, rows.shape.rank() == 2 && rows.shape == rows_shape(node.attrs, rows.shape[1]),
              "the number of rows must equal the capacity");
      require_way(node);
      return {.y = {rows.dtype, {node.attrs.token_parts * node.attrs.tokens, rows.shape[1]}}};
    },
    .cost = [](const auto& node) { return moved(*node.in.rows); },
    .placements = [](const auto& node, Axis axis) -> Splits<CombineRows> {
      const Placement y = is_summed(node.attrs, axis) ? kP : kS0;
      return {{{.rows = kS0, .way = kS0, .others = y}, {.y = y}},
              // Each rank's rows are terms of a sum, and so are the sums of them.
              {{.rows = kP, .way = kR, .others = kP}, {.y = kP}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          builder.add_gradient(
              node.in.rows,
              add<DispatchRows>(builder.graph(), {.x = builder.gradient_of(node.out.y), .way = node.in.way},
                                node.attrs)
                  .rows);
        },
    .localize = of_a_rank<CombineRows>,
    .queue = graph::Queue::kCommunication,
    .ranks = [](const auto& node) { return ranks_of(node.attrs, row_bytes(*node.in.rows)); },
});

const OpDef CombineSlotGrads::def = define<CombineSlotGrads>({
    .name = "combine_slot_grads",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CombineSlotGrads> {
      require(node, node.in.grads->shape == Shape{node.attrs.parts * node.attrs.slots()},
              "gradients must be f32[S]");
      require(node, has_row_a_token(node, *node.in.ids), "ids must be i32[N, k]");
      require_way(node);
      return {.dweights = {DType::kF32, node.in.ids->shape}};
    },
    .cost = [](const auto& node) { return moved(*node.in.grads); },
    .placements = [](const auto& node, Axis axis) -> Splits<CombineSlotGrads> {
      const bool summed = is_summed(node.attrs, axis);
      const Placement given = summed ? kP : kS0;
      return {{{.grads = kS0, .ids = summed ? kP : kS0, .offsets = kS0, .way = kS0, .others = given},
               {.dweights = given}},
              {{.grads = kP, .ids = kR, .offsets = kR, .way = kR, .others = kP}, {.dweights = kP}}};
    },
    .localize = of_a_rank<CombineSlotGrads>,
    .ranks = [](const auto& node) { return ranks_of(node.attrs, 4 * node.attrs.hits()); },
});

const OpDef RemainingTokens::def = define<RemainingTokens>({
    .name = "remaining_tokens",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RemainingTokens> {
      require_way(node);
      return {.next = {DType::kI32, {node.attrs.parts}}};
    },
    .cost = [](const auto&) -> Cost {
      return {0, 8};
    },
    .placements = [](const auto&, Axis) -> Splits<RemainingTokens> {
      return {{{.way = kS0}, {.next = kS0}}};
    },
    .localize = of_a_rank<RemainingTokens>,
});

const OpDef ExpertRounds::def = define<ExpertRounds>({
    .name = "expert_rounds",
    .family = "elementwise",
    .infer = [](const auto&) -> Outputs<ExpertRounds> {
      return {.rounds = {DType::kI64, {1}}};
    },
    .cost = [](const auto&) -> Cost {
      return {0, 12};
    },
    .placements = [](const auto&, Axis) -> Splits<ExpertRounds> {
      return {{{.way = kS0}, {.rounds = kP}}};
    },
});

}  // namespace strata::ops
