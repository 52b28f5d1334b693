#include "ops/rules.h"

#include <algorithm>
#include <utility>

#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/sizes.h"

namespace strata::ops {

void RecurrenceAttrs::describe(graph::AttributeText& to) const {
  to("kind", kind == RecurrenceKind::kDelta ? "delta" : "state_space");
  to("key_dim", key_dim);
  to("value_dim", value_dim);
  to("sequence_length", sequence_length);
  if (pieces != 1) to("pieces", pieces);
  if (l2_norm) to("l2_norm", l2_norm);
  if (scale != 1) to("scale", scale);
  to("chunk", chunk);
}

namespace {

// Heads and ranges, of operands that have passed the checks so far.
struct RecurrenceSizes : RecurrenceHeads {
  int64_t rows = 0, pieces = 0;
  Shape states() const { return {pieces, state_width()}; }
};

template <typename Op>
RecurrenceHeads require_mixed(const View<Op>& node) {
  const auto& attrs = node.attrs;
  const Value& mixed = *node.in.mixed;
  require(node, attrs.key_dim > 0 && attrs.value_dim > 0 && attrs.chunk > 0,
          "key_dim, value_dim and chunk must be above 0");
  require(node, mixed.shape.rank() == 2 && mixed.segments.size() == 3, "mixed must be [N, three segments]");
  const RecurrenceHeads heads(attrs, mixed.segments);
  require(node, heads.fit(mixed.segments),
          "the segments must be whole heads: [q | k | v] of delta, [v | k | q] of the state space, equal "
          "numbers of queries and keys, and a multiple of that of values");
  return heads;
}

template <typename Op>
RecurrenceSizes require_rows(const View<Op>& node, int64_t pieces_of_sequence) {
  const auto& attrs = node.attrs;
  const auto& in = node.in;
  const Value& mixed = *in.mixed;
  RecurrenceSizes sizes{require_mixed(node)};
  sizes.rows = mixed.shape[0];
  require(node, attrs.sequence_length > 0 && sizes.rows % attrs.sequence_length == 0,
          "the rows must be whole sequences");
  require(node, pieces_of_sequence > 0 && attrs.sequence_length % pieces_of_sequence == 0,
          "a sequence must be equal ranges");
  sizes.pieces = sizes.rows / attrs.sequence_length * pieces_of_sequence;
  require(node, in.beta->shape == Shape{sizes.rows, sizes.value_heads}, "beta must be f32[N, value heads]");
  const bool delta = attrs.kind == RecurrenceKind::kDelta;
  const bool by_channel = delta && in.g->shape == Shape{sizes.rows, sizes.value_heads * sizes.key_dim};
  require(node, by_channel || in.g->shape == in.beta->shape,
          "g must be f32[N, value heads], or f32[N, value heads · key_dim] of delta");
  require(node, !by_channel || sizes.key_heads == sizes.value_heads,
          "a decay by channel has as many key heads as value heads");
  require(node, delta || !attrs.l2_norm, "keys of a state space are not normalised");
  if constexpr (requires { in.skip; }) {
    require(node, !in.skip || (!delta && in.skip->shape == Shape{sizes.value_heads}),
            "skip must be f32[value heads], of a state space");
  }
  if constexpr (requires { in.positions; })
    require(node, in.positions->shape == Shape{sizes.rows}, "positions must have one entry a row");
  if constexpr (requires { in.dout; }) {
    require(node, in.dout->shape == Shape{sizes.rows, sizes.value_width()} && in.dout->dtype == mixed.dtype,
            "the gradient must have the shape of the outputs");
  }
  return sizes;
}
template <typename Op>
RecurrenceSizes require_rows(const View<Op>& node) {
  const RecurrenceSizes sizes = require_rows(node, node.attrs.pieces);
  const auto require_states = [&](const graph::Ref& states) {
    require(node, !states || states->shape == sizes.states(),
            "states must be f32[sequences · pieces, value heads · key_dim · value_dim]");
  };
  if constexpr (requires { node.in.before; }) require_states(node.in.before);
  if constexpr (requires { node.in.dlast; }) require_states(node.in.dlast);
  return sizes;
}

// Value heads of operands that are maps of whole heads.
template <typename Op>
int64_t require_maps(const View<Op>& node) {
  const auto& attrs = node.attrs;
  const Value& map = *node.in.map;
  const int64_t width = map_width(attrs);
  require(node, map.shape.rank() == 2 && width > 0 && map.shape[1] % width == 0,
          "maps must be f32[sequences · pieces, value heads · (M | N)]");
  require(node, attrs.pieces > 0 && map.shape[0] % attrs.pieces == 0, "maps must be of whole sequences");
  return map.shape[1] / width;
}
template <typename Op>
Spec states_of_maps(const View<Op>& node) {
  return {DType::kF32,
          {node.in.map->shape[0], require_maps(node) * node.attrs.key_dim * node.attrs.value_dim}};
}

// Rows of whole sequences; on the context axis of their ranges, whose states are then exchanged; and heads.
// Members that are neither belong to heads: skip.
template <typename Op>
Splits<Op> recurrence_splits(const View<Op>& node, Axis axis) {
  graph::Split<Op> rows = split_alike<Op>(kS0), heads = split_alike<Op>(kS1);
  if constexpr (requires { rows.in.skip; }) {
    rows.in.skip = kR;
    heads.in.skip = kS0;
  }
  if constexpr (requires { rows.in.positions; }) heads.in.positions = kR;
  if constexpr (requires { rows.out.dskip; }) {
    rows.out.dskip = kP;
    heads.out.dskip = kS0;
  }
  // The maps are whole there.
  if constexpr (requires {
                  rows.in.before;
                  rows.in.map;
                }) {
    if (axis == Axis::kContext) rows.in.map = kR;
  }
  if (axis == Axis::kContext && node.attrs.pieces == 1) return {heads};
  return {rows, heads};
}

// A rank's rows and ranges of a sequence, if ranks share it.
template <typename Op>
RecurrenceAttrs localize_pieces(const View<Op>& node) {
  RecurrenceAttrs attrs = node.attrs;
  if (node.graph.placement(node.in.mixed, Axis::kContext) != kS0) return attrs;
  const int64_t ranks = node.graph.mesh().size(Axis::kContext);
  attrs.sequence_length /= ranks;
  attrs.pieces /= ranks;
  return attrs;
}

// Operations of the chunked form of `rows` rows. A chunk has C rows; a token and value head takes 6KV + 4CK + 2CV
// + C(K + V) of the delta rule, and 4KV + 2CV of a state space, where 2CK go to a group.
double chunked_flops(const RecurrenceAttrs& attrs, const RecurrenceHeads& heads, int64_t rows) {
  const auto k = static_cast<double>(heads.key_dim), v = static_cast<double>(heads.value_dim);
  const auto c = static_cast<double>(std::min(attrs.chunk, std::max<int64_t>(1, attrs.sequence_length)));
  const auto value_heads = static_cast<double>(heads.value_heads),
             key_heads = static_cast<double>(heads.key_heads);
  const double token = attrs.kind == RecurrenceKind::kDelta
                           ? value_heads * (6 * k * v + 4 * c * k + 2 * c * v + c * (k + v))
                           : value_heads * (4 * k * v + 2 * c * v) + key_heads * 2 * c * k;
  return token * static_cast<double>(rows);
}
template <typename Op>
Cost recurrence_cost(const View<Op>& node, double times) {
  const Value& mixed = *node.in.mixed;
  const RecurrenceHeads heads(node.attrs, mixed.segments);
  return {times * chunked_flops(node.attrs, heads, mixed.shape[0]), graph::streamed_bytes(node.untyped())};
}
template <typename Op>
Cost compose_cost(const View<Op>& node) {
  const auto& attrs = node.attrs;
  const auto states = static_cast<double>(node.in.map->shape[0] * (node.in.map->shape[1] / map_width(attrs)) *
                                          attrs.key_dim * attrs.value_dim);
  const double m = attrs.kind == RecurrenceKind::kDelta ? static_cast<double>(attrs.key_dim) : 1;
  return {2 * m * states, graph::streamed_bytes(node.untyped())};
}
// States and maps of whole sequences, and of whole heads.
template <typename Op>
Splits<Op> compose_splits(const View<Op>&, Axis axis) {
  if (axis == Axis::kContext) return {split_alike<Op>(kS1)};
  return {split_alike<Op>(kS0), split_alike<Op>(kS1)};
}

void gradient_recurrence(GradientBuilder& builder, const View<Recurrence>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dout = builder.gradient_of(node.out.o);
  ValueId dlast = kNone;
  if (in.map) {
    const ValueId own =
        add<RecurrenceStateGrad>(
            graph, {.dout = dout, .mixed = in.mixed, .g = in.g, .beta = in.beta, .positions = in.positions},
            node.attrs)
            .dbefore;
    const int64_t pieces = node.attrs.pieces;
    const ValueId whole = graph::reshard(graph, own, Axis::kContext, kR, pieces);
    const ValueId composed =
        add<ComposeStateGrads>(graph, {.map = in.map, .dbefore = whole}, node.attrs).dlast;
    dlast = graph::reshard(graph, composed, Axis::kContext, kS0, pieces);
  }
  const auto gradients = add<RecurrenceGrad>(graph,
                                             {.dout = dout,
                                              .mixed = in.mixed,
                                              .g = in.g,
                                              .beta = in.beta,
                                              .skip = in.skip,
                                              .positions = in.positions,
                                              .before = in.before,
                                              .dlast = dlast},
                                             node.attrs);
  builder.add_gradient(in.mixed, gradients.dmixed);
  builder.add_gradient(in.g, gradients.dg);
  builder.add_gradient(in.beta, gradients.dbeta);
  // The states of other ranks pass their gradients through the maps.
  if (in.before && !in.map) builder.add_gradient(in.before, gradients.dbefore);
  if (!in.skip) return;
  const graph::InIds<RecurrenceSkipGrad> of_skip{.dout = dout, .mixed = in.mixed};
  if (!builder.is_parameter(in.skip)) {  // a rank's part of it
    if (builder.wants(in.skip))
      builder.add_gradient(in.skip, add<RecurrenceSkipGrad>(graph, of_skip, node.attrs).dskip);
    return;
  }
  builder.weight_grad();
  add_into<RecurrenceSkipGrad>(graph, of_skip, {.dskip = builder.parameter_gradient(in.skip)}, node.attrs);
}

}  // namespace

const OpDef Recurrence::def = define<Recurrence>({
    .name = "recurrence",
    .family = "recurrence",
    .infer = [](const auto& node) -> Outputs<Recurrence> {
      const RecurrenceSizes sizes = require_rows(node);
      require(node, !node.in.map || node.in.before, "maps of other ranges come with the states before these");
      return {.o = {node.in.mixed->dtype, {sizes.rows, sizes.value_width()}}};
    },
    .cost = [](const auto& node) { return recurrence_cost(node, 1); },
    .placements = recurrence_splits<Recurrence>,
    .gradient = gradient_recurrence,
    .localize = localize_pieces,
});

const OpDef RecurrenceGrad::def = define<RecurrenceGrad>({
    .name = "recurrence_grad",
    .family = "recurrence_grad",
    .infer = [](const auto& node) -> Outputs<RecurrenceGrad> {
      const auto& in = node.in;
      const RecurrenceSizes sizes = require_rows(node);
      return {.dmixed = Spec::like(*in.mixed),
              .dg = {DType::kF32, in.g->shape},
              .dbeta = {DType::kF32, in.beta->shape},
              .dbefore = in.before ? Spec{DType::kF32, sizes.states()} : Spec::none()};
    },
    // Products of the chunks are made again.
    .cost = [](const auto& node) { return recurrence_cost(node, 2.4); },
    .placements = recurrence_splits<RecurrenceGrad>,
    .localize = localize_pieces,
});

const OpDef RecurrenceSkipGrad::def = define<RecurrenceSkipGrad>({
    .name = "recurrence_skip_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<RecurrenceSkipGrad> {
      const RecurrenceHeads heads = require_mixed(node);
      const Value &dout = *node.in.dout, &mixed = *node.in.mixed;
      require(node, dout.shape == Shape{mixed.shape[0], heads.value_width()} && dout.dtype == mixed.dtype,
              "the gradient must have the shape of the outputs");
      return {.dskip = {DType::kF32, {heads.value_heads}}};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto&, Axis) -> Splits<RecurrenceSkipGrad> {
      return {{{.dout = kS0, .mixed = kS0}, {.dskip = kP}}, {{.dout = kS1, .mixed = kS1}, {.dskip = kS0}}};
    },
});

const OpDef RecurrenceMap::def = define<RecurrenceMap>({
    .name = "recurrence_map",
    .family = "recurrence",
    .infer = [](const auto& node) -> Outputs<RecurrenceMap> {
      const RecurrenceSizes sizes = require_rows(node);
      return {.map = {DType::kF32, {sizes.pieces, sizes.value_heads * map_width(node.attrs)}}};
    },
    .cost = [](const auto& node) { return recurrence_cost(node, 1); },
    .placements = recurrence_splits<RecurrenceMap>,
    .localize = localize_pieces,
});

const OpDef RecurrenceStateGrad::def = define<RecurrenceStateGrad>({
    .name = "recurrence_state_grad",
    .family = "recurrence",
    .infer = [](const auto& node) -> Outputs<RecurrenceStateGrad> {
      return {.dbefore = {DType::kF32, require_rows(node).states()}};
    },
    .cost = [](const auto& node) { return recurrence_cost(node, 1); },
    .placements = recurrence_splits<RecurrenceStateGrad>,
    .localize = localize_pieces,
});

const OpDef ComposeMaps::def = define<ComposeMaps>({
    .name = "compose_maps",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ComposeMaps> { return {.before = states_of_maps(node)}; },
    .cost = compose_cost<ComposeMaps>,
    .placements = compose_splits<ComposeMaps>,
});

const OpDef ComposeStateGrads::def = define<ComposeStateGrads>({
    .name = "compose_state_grads",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ComposeStateGrads> {
      Spec states = states_of_maps(node);
      require(node, node.in.dbefore->shape == states.shape, "gradients and maps must be of the same ranges");
      return {.dlast = std::move(states)};
    },
    .cost = compose_cost<ComposeStateGrads>,
    .placements = compose_splits<ComposeStateGrads>,
});

const OpDef CachedRecurrence::def = define<CachedRecurrence>({
    .name = "cached_recurrence",
    .family = "recurrence",
    .infer = [](const auto& node) -> Outputs<CachedRecurrence> {
      const auto& in = node.in;
      const RecurrenceSizes sizes = require_rows(node, 1);
      const Value& cache = *in.cache;
      require(node, cache.shape.rank() == 2 && cache.shape[1] == sizes.state_width(),
              "the cache must be f32[entries, value heads · key_dim · value_dim]");
      require(node, sizes.pieces <= cache.shape[0], "every sequence must have an entry of the cache");
      for (const graph::Ref* of : {&in.position, &in.slot, &in.count})
        require(node, (*of)->shape == Shape{sizes.pieces},
                "there must be one position, entry and count a sequence");
      return {.o = {in.mixed->dtype, {sizes.rows, sizes.value_width()}}, .cache = {DType::kF32, cache.shape}};
    },
    // One row reads and writes a state; more go by chunks.
    .cost = [](const auto& node) -> Cost {
      const auto& in = node.in;
      Cost cost = recurrence_cost(node, 1);
      const int64_t unused = in.cache->shape[0] - in.slot->shape[0];
      cost.bytes -= static_cast<double>(2 * unused * (in.cache->bytes() / in.cache->shape[0]));
      return cost;
    },
    .placements = [](const auto&, Axis) -> Splits<CachedRecurrence> {
      graph::Split<CachedRecurrence> heads = split_alike<CachedRecurrence>(kS1);
      heads.in.skip = kS0;
      heads.in.position = heads.in.slot = heads.in.count = kR;
      return {heads};
    },
});

ValueId recurrence(Graph& graph, const RecurrenceOperands& operands, const RecurrenceAttrs& attrs) {
  graph::InIds<Recurrence> in{.mixed = operands.mixed,
                              .g = operands.g,
                              .beta = operands.beta,
                              .skip = operands.skip,
                              .positions = operands.positions};
  if (graph.mesh().size(Axis::kContext) > 1 && graph.placement(operands.mixed, Axis::kContext) == kS0) {
    const ValueId own = add<RecurrenceMap>(graph,
                                           {.mixed = operands.mixed,
                                            .g = operands.g,
                                            .beta = operands.beta,
                                            .positions = operands.positions},
                                           attrs)
                            .map;
    in.map = graph::reshard(graph, own, Axis::kContext, kR, attrs.pieces);
    const ValueId composed = add<ComposeMaps>(graph, {.map = in.map}, attrs).before;
    in.before = graph::reshard(graph, composed, Axis::kContext, kS0, attrs.pieces);
  }
  return add<Recurrence>(graph, in, attrs).o;
}

ValueId cached_recurrence(Graph& graph, const RecurrenceOperands& operands, const RecurrenceCache& cache,
                          const RecurrenceAttrs& attrs) {
  const Value& rows = graph.value(operands.mixed);
  const RecurrenceHeads heads(attrs, rows.segments);
  Value out;
  out.name = rows.name + ".recurred";
  out.dtype = rows.dtype;
  out.shape = {rows.shape[0], heads.value_width()};
  const ValueId o = graph.add_value(std::move(out));
  add_into<CachedRecurrence>(graph,
                             {.mixed = operands.mixed,
                              .g = operands.g,
                              .beta = operands.beta,
                              .skip = operands.skip,
                              .cache = cache.states,
                              .position = cache.position,
                              .slot = cache.slot,
                              .count = cache.count},
                             {.o = o, .cache = cache.states}, attrs);
  return o;
}

}  // namespace strata::ops
