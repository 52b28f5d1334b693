#include "ops/rules.h"
#include "ops/causal_convolution/causal_convolution.h"

namespace strata::ops {
namespace {

constexpr int64_t kMostTaps = 16;

// The weight and bias of an op with C channels; returns w.
template <typename Op>
int64_t require_parameters(const View<Op>& node, int64_t channels) {
  const Shape& weight = node.in.weight->shape;
  require(node, weight.rank() == 2 && weight[0] == channels && weight[1] >= 1 && weight[1] <= kMostTaps,
          "the weight must be [C, w] with w from 1 to 16");
  require(node, !node.in.bias || node.in.bias->shape == Shape{channels}, "the bias must be f32[C]");
  return weight[1];
}

template <typename Attrs>
void require_pieces(const NodeView& view, const Attrs& attrs, int64_t rows) {
  require(view,
          attrs.sequence_length > 0 && attrs.pieces > 0 && attrs.sequence_length % attrs.pieces == 0 &&
              rows % attrs.sequence_length == 0,
          "the rows must be whole sequences of equal pieces");
}
template <typename Attrs>
int64_t rows_of_tails(const Attrs& attrs, int64_t rows, int64_t taps) {
  return rows / attrs.sequence_length * attrs.pieces * (taps - 1);
}

// What CausalConvolution and its gradients read.
template <typename Op>
void require_convolution(const View<Op>& node) {
  const auto& in = node.in;
  const Value& x = *in.x;
  require(node, x.shape.rank() == 2, "x must be [N, C]");
  const int64_t rows = x.shape[0], channels = x.shape[1], taps = require_parameters(node, channels);
  require_pieces(node.untyped(), node.attrs, rows);
  require(node, in.positions->shape == Shape{rows}, "there must be one position a row");
  require(node,
          !in.before || (in.before->dtype == x.dtype && taps > 1 &&
                         in.before->shape == Shape{rows_of_tails(node.attrs, rows, taps), channels}),
          "the rows before pieces must be w - 1 for each, in the dtype of x");
  if constexpr (requires { in.dy; })
    require(node, in.dy->shape == x.shape && in.dy->dtype == x.dtype,
            "the gradient must have the shape and dtype of x");
}

template <typename Op>
Cost cost_of_convolution(const View<Op>& node, double convolutions) {
  const double taps = static_cast<double>(node.in.weight->shape[1]);
  return streamed(node, 2 * convolutions * taps + (node.attrs.silu ? 10 : 0));
}

// Whole sequences, and channels; on the context axis the pieces of all ranks.
template <typename Op>
bool cuts_rows(const View<Op>& node, Axis axis) {
  return axis != Axis::kContext || node.attrs.pieces > 1;
}
template <typename Op>
Splits<Op> convolution_splits(const View<Op>& node, Axis axis) {
  graph::Split<Op> rows = split_alike<Op>(kS0), channels = split_alike<Op>(kS1);
  rows.in.weight = rows.in.bias = channels.in.positions = kR;
  channels.in.weight = channels.in.bias = kS0;
  if constexpr (requires { rows.out.dw; }) {
    rows.out = {.dw = kP, .dbias = kP};
    channels.out = {.dw = kS0, .dbias = kS0};
  }
  Splits<Op> splits = cuts_rows(node, axis) ? Splits<Op>{rows, channels} : Splits<Op>{channels};
  if constexpr (requires { rows.in.dy; }) {
    // Terms of a gradient give terms, of channels that all ranks have.
    graph::Split<Op> terms = split_alike<Op>(kR);
    terms.in.dy = kP;
    if constexpr (requires { rows.out.dw; }) {
      terms.out = {.dw = kP, .dbias = kP};
    } else {
      terms.out = {.dx = kP, .dbefore = kP};
    }
    splits.push_back(terms);
  }
  return splits;
}
template <typename Op>
Splits<Op> rows_and_channels(const View<Op>& node, Axis axis) {
  const graph::Split<Op> channels = split_alike<Op>(kS1);
  return cuts_rows(node, axis) ? Splits<Op>{split_alike<Op>(kS0), channels} : Splits<Op>{channels};
}

// A rank's rows and pieces of a sequence that ranks share. `rows`: a value with rows.
template <typename Attrs>
Attrs localize_pieces(const Graph& graph, ValueId rows, Attrs attrs) {
  if (graph.placement(rows, Axis::kContext) != kS0) return attrs;
  const int64_t ranks = graph.mesh().size(Axis::kContext);
  attrs.sequence_length /= ranks;
  attrs.pieces /= ranks;
  return attrs;
}

Spec like_or_none(const graph::Ref& value) {
  return value ? Spec::like(*value) : Spec::none();
}

}  // namespace

const OpDef CausalConvolution::def = define<CausalConvolution>({
    .name = "causal_convolution",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CausalConvolution> {
      require_convolution(node);
      return {.y = Spec::like(*node.in.x)};
    },
    .cost = [](const auto& node) { return cost_of_convolution(node, 1); },
    .placements = convolution_splits<CausalConvolution>,
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          Graph& graph = builder.graph();
          const graph::InIds<CausalConvolutionGradInput> read{.dy = builder.gradient_of(node.out.y),
                                                              .x = in.x,
                                                              .weight = in.weight,
                                                              .bias = in.bias,
                                                              .positions = in.positions,
                                                              .before = in.before};
          const auto given = add<CausalConvolutionGradInput>(graph, read, node.attrs);
          builder.add_gradient(in.x, given.dx);
          if (in.before) builder.add_gradient(in.before, given.dbefore);
          if (!builder.wants(in.weight)) return;
          builder.weight_grad();
          add_into<CausalConvolutionGradWeight>(
              graph, read,
              {.dw = builder.parameter_gradient(in.weight),
               .dbias = in.bias ? builder.parameter_gradient(in.bias) : kNone},
              node.attrs);
        },
    .recompute = again<CausalConvolution>,
    .localize = [](const auto& node) { return localize_pieces(node.graph, node.in.x, node.attrs); },
});

const OpDef CausalConvolutionGradInput::def = define<CausalConvolutionGradInput>({
    .name = "causal_convolution_grad_input",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CausalConvolutionGradInput> {
      require_convolution(node);
      return {.dx = Spec::like(*node.in.x), .dbefore = like_or_none(node.in.before)};
    },
    .cost = [](const auto& node) { return cost_of_convolution(node, node.attrs.silu ? 2 : 1); },
    .placements = convolution_splits<CausalConvolutionGradInput>,
    .localize = [](const auto& node) { return localize_pieces(node.graph, node.in.x, node.attrs); },
});

const OpDef CausalConvolutionGradWeight::def = define<CausalConvolutionGradWeight>({
    .name = "causal_convolution_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CausalConvolutionGradWeight> {
      require_convolution(node);
      return {.dw = Spec::like(*node.in.weight), .dbias = like_or_none(node.in.bias)};
    },
    .cost = [](const auto& node) { return cost_of_convolution(node, node.attrs.silu ? 2 : 1); },
    .placements = convolution_splits<CausalConvolutionGradWeight>,
    .localize = [](const auto& node) { return localize_pieces(node.graph, node.in.x, node.attrs); },
});

const OpDef ConvolutionTails::def = define<ConvolutionTails>({
    .name = "convolution_tails",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ConvolutionTails> {
      const Value& x = *node.in.x;
      const auto& attrs = node.attrs;
      require(node, x.shape.rank() == 2, "x must be [N, C]");
      require_pieces(node.untyped(), attrs, x.shape[0]);
      require(node, attrs.taps > 1 && attrs.taps <= kMostTaps, "there are tails of 2 to 16 taps");
      require(node, attrs.sequence_length / attrs.pieces >= attrs.taps - 1,
              "a piece must have as many rows as its tail");
      Spec tails = Spec::like(x);
      tails.shape.set(0, rows_of_tails(attrs, x.shape[0], attrs.taps));
      return {.tails = tails};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, 2 * static_cast<double>(node.out.tails->bytes())};
    },
    .placements = rows_and_channels<ConvolutionTails>,
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dtails = builder.gradient_of(node.out.tails);
          builder.add_gradient(node.in.x,
                               add<ConvolutionTailsGrad>(builder.graph(), {.dtails = dtails}, node.attrs).dx);
        },
    .localize = [](const auto& node) { return localize_pieces(node.graph, node.in.x, node.attrs); },
});

const OpDef ConvolutionTailsGrad::def = define<ConvolutionTailsGrad>({
    .name = "convolution_tails_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ConvolutionTailsGrad> {
      const Value& dtails = *node.in.dtails;
      const auto& attrs = node.attrs;
      const int64_t of_sequence = attrs.pieces * (attrs.taps - 1);
      require(node, dtails.shape.rank() == 2 && of_sequence > 0 && dtails.shape[0] % of_sequence == 0,
              "the gradient must have the rows of tails");
      Spec dx = Spec::like(dtails);
      dx.shape.set(0, dtails.shape[0] / of_sequence * attrs.sequence_length);
      require_pieces(node.untyped(), attrs, dx.shape[0]);
      return {.dx = dx};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto& node, Axis axis) -> Splits<ConvolutionTailsGrad> {
      auto splits = rows_and_channels<ConvolutionTailsGrad>(node, axis);
      splits.push_back({{.dtails = kP}, {.dx = kP}});
      return splits;
    },
    .localize = [](const auto& node) { return localize_pieces(node.graph, node.in.dtails, node.attrs); },
});

const OpDef ShiftPieces::def = define<ShiftPieces>({
    .name = "shift_pieces",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ShiftPieces> {
      const Value& x = *node.in.x;
      const auto& attrs = node.attrs;
      require(node,
              x.shape.rank() == 2 && attrs.pieces > 0 && attrs.rows > 0 &&
                  x.shape[0] % (attrs.pieces * attrs.rows) == 0,
              "x must have the rows of whole sequences of pieces");
      return {.shifted = Spec::like(x)};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis axis) -> Splits<ShiftPieces> {
      if (axis == Axis::kContext) return {{{.x = kS1}, {.shifted = kS1}}, {{.x = kP}, {.shifted = kP}}};
      return {{{.x = kS0}, {.shifted = kS0}}, {{.x = kS1}, {.shifted = kS1}}, {{.x = kP}, {.shifted = kP}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          ShiftPiecesAttrs attrs = node.attrs;
          attrs.back = !attrs.back;
          const ValueId dy = builder.gradient_of(node.out.shifted);
          builder.add_gradient(node.in.x, add<ShiftPieces>(builder.graph(), {.x = dy}, attrs).shifted);
        },
});

const OpDef CachedConvolution::def = define<CachedConvolution>({
    .name = "cached_convolution",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<CachedConvolution> {
      const auto& in = node.in;
      const Value &x = *in.x, &cache = *in.cache;
      require(node, x.shape.rank() == 2, "x must be [N, C]");
      const int64_t channels = x.shape[1], taps = require_parameters(node, channels);
      require(node,
              cache.shape.rank() == 3 && cache.shape[1] == taps - 1 && cache.shape[2] == channels &&
                  cache.dtype == x.dtype,
              "the cache must be [entries, w - 1, C] in the dtype of x");
      const Shape& sequences = in.position->shape;
      require(node,
              sequences.rank() == 1 && sequences[0] > 0 && x.shape[0] % sequences[0] == 0 &&
                  in.slot->shape == sequences && in.count->shape == sequences,
              "there must be one position, entry and number of tokens for each sequence of rows");
      require(node, sequences[0] <= cache.shape[0], "every sequence must have an entry of the cache");
      return {.y = Spec::like(x), .cache = {cache.dtype, cache.shape}};
    },
    .cost = [](const auto& node) -> Cost {
      Cost cost = cost_of_convolution(node, 1);
      const double entry =
          static_cast<double>(node.in.cache->bytes()) / static_cast<double>(node.in.cache->shape[0]);
      cost.bytes = 2 * static_cast<double>(node.in.x->bytes()) +
                   static_cast<double>(node.in.weight->bytes()) +
                   2 * entry * static_cast<double>(node.in.position->shape[0]);
      return cost;
    },
    .placements = [](const auto&, Axis) -> Splits<CachedConvolution> {
      constexpr Placement columns = Placement::sharded(2);
      return {
          {{.x = kS1, .weight = kS0, .bias = kS0, .cache = columns, .position = kR, .slot = kR, .count = kR},
           {.y = kS1, .cache = columns}}};
    },
});

ValueId causal_convolution(Graph& graph, ValueId x, const ConvolutionParameters& parameters,
                           ValueId positions, const CausalConvolutionAttrs& attrs) {
  ValueId before = kNone;
  const int64_t taps = graph.value(parameters.weight).shape[1];
  if (graph.mesh().size(Axis::kContext) > 1 && graph.placement(x, Axis::kContext) == kS0 && taps > 1) {
    const ConvolutionTailsAttrs of_tails{
        .sequence_length = attrs.sequence_length, .pieces = attrs.pieces, .taps = taps};
    const int64_t rows = taps - 1, sequence = attrs.pieces * rows;
    const ValueId tails = add<ConvolutionTails>(graph, {.x = x}, of_tails).tails;
    const ValueId whole = graph::reshard(graph, tails, Axis::kContext, kR, sequence);
    const ValueId shifted =
        add<ShiftPieces>(graph, {.x = whole}, {.pieces = attrs.pieces, .rows = rows}).shifted;
    before = graph::reshard(graph, shifted, Axis::kContext, kS0, sequence);
  }
  return add<CausalConvolution>(graph,
                                {.x = x,
                                 .weight = parameters.weight,
                                 .bias = parameters.bias,
                                 .positions = positions,
                                 .before = before},
                                attrs)
      .y;
}

ValueId cached_convolution(Graph& graph, ValueId x, const ConvolutionParameters& parameters,
                           const ConvolutionCache& cache, const CachedConvolutionAttrs& attrs) {
  const Value& rows = graph.value(x);
  Value convolved;
  convolved.name = rows.name + ".convolved";
  convolved.dtype = rows.dtype;
  convolved.shape = rows.shape;
  convolved.segments = rows.segments;
  convolved.segments_along = rows.segments_along;
  const ValueId y = graph.add_value(std::move(convolved));
  add_into<CachedConvolution>(graph,
                              {.x = x,
                               .weight = parameters.weight,
                               .bias = parameters.bias,
                               .cache = cache.cache,
                               .position = cache.position,
                               .slot = cache.slot,
                               .count = cache.count},
                              {.y = y, .cache = cache.cache}, attrs);
  return y;
}

}  // namespace strata::ops
