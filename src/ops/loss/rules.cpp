#include "ops/rules.h"
#include "base/error.h"
#include "ops/loss/loss.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_head(const View<Op>& node) {
  const auto& in = node.in;
  require(node, in.x->shape[1] == in.weight->shape[1],
          "the last axis of x must equal the last axis of the weight");
  require(node, in.targets->shape == Shape{in.x->shape[0]}, "targets must be i32[N]");
  if (!in.bias) return;
  require(node, in.bias->shape == Shape{in.weight->shape[0]},
          "the bias must be f32 with one element a row of the weight");
  require(node, node.attrs.softcap == 0, "capped logits take no bias: leave out one of the two");
}

template <typename Op>
void require_seed(const View<Op>& node) {
  require(node, !node.in.seed || node.in.seed->shape == Shape{1}, "the seed must be f32[1]");
}

// Outputs of the losses of N tokens.
template <typename Op>
Outputs<Op> loss_outputs(int64_t tokens) {
  return {.sum = {DType::kF64, {1}},
          .count = {DType::kI64, {1}},
          .per_token = {DType::kF32, {tokens}},
          .greedy = {DType::kI32, {tokens}}};
}

template <typename Op>
Spec bias_gradient(const View<Op>& node) {
  return node.in.bias ? Spec{DType::kF32, {node.in.weight->shape[0]}} : Spec::none();
}

// The cost of `matmuls` matmuls of the head's size. Excludes tokens without a target. Memory never contains
// all logits, but each is written and read once on its way through the cache. The speed depends on the work
// per logit, so on the width, not on the number of tokens that share the weights.
template <int matmuls, typename Op>
Cost cost_of_matmuls(const View<Op>& node) {
  const double tokens = static_cast<double>(node.in.x->shape[0]), share = node.attrs.target_share;
  const Shape& weight = node.in.weight->shape;
  const double streamed = graph::streamed_bytes(node.untyped());
  return {.flops = matmuls * share * (2.0 * tokens * static_cast<double>(weight.elements())),
          .bytes = streamed + share * (8.0 * tokens * static_cast<double>(weight[0])),
          .streamed_bytes = streamed};
}

ValueId dx_of_loss(Graph& graph, const Value& x) {
  return graph.add_value(
      {.name = "loss.dx", .dtype = x.dtype, .shape = x.shape, .encoding = {}, .placements = {}});
}

ValueId bias_gradient(GradientBuilder& builder, const graph::Ref& bias) {
  return bias ? builder.parameter_gradient(bias) : kNone;
}

// Loss and gradients come from one instruction, so that logits are made once.
void gradient_linear_cross_entropy(GradientBuilder& builder, const View<LinearCrossEntropy>& node) {
  builder.replace_forward();
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dx = dx_of_loss(graph, *in.x);
  add_into<LinearCrossEntropyTrain>(graph,
                                    {.x = in.x,
                                     .weight = in.weight,
                                     .weight_of_dx = in.weight,
                                     .targets = in.targets,
                                     .bias = in.bias,
                                     .seed = builder.gradient_of(node.out.sum)},
                                    {.sum = node.out.sum,
                                     .count = node.out.count,
                                     .dx = dx,
                                     .dw = builder.parameter_gradient(in.weight),
                                     .dbias = bias_gradient(builder, in.bias)},
                                    node.attrs);
  builder.add_gradient(in.x, dx);
}

// --- The split form

// Parts of the vocabulary in the weight.
template <typename Op>
int64_t parts_of(const View<Op>& node) {
  return node.in.vocab_start ? node.in.vocab_start->shape[0] : 1;
}

template <typename Op>
void require_parts(const View<Op>& node) {
  require_head(node);
  const Value& weight = *node.in.weight;
  const int64_t rows = weight.shape[0], vocabulary = node.attrs.vocabulary;
  if (!node.in.vocab_start) {
    require(node, vocabulary == rows,
            "without vocab_start the weight must have one row a token of the vocabulary");
    return;
  }
  const Shape& start = node.in.vocab_start->shape;
  require(node, start.rank() == 1 && start[0] > 0, "vocab_start must be i32[parts]");
  const bool divides =
      rows % start[0] == 0 || weight.sharding.padding.uneven.has_value();  // as ranks have it
  require(node, divides && vocabulary >= rows, "the weight must be parts of equal size of the vocabulary");
}

template <typename Op>
void require_gradient(const View<Op>& node) {
  require_parts(node);
  const Shape expected{parts_of(node), node.in.x->shape[0], 3};
  require(node, node.in.statistics->shape == expected && node.in.dstatistics->shape == expected,
          "statistics and their gradient must be f32[parts, N, 3]");
}

template <typename Op>
void require_reduction(const View<Op>& node) {
  const Shape& statistics = node.in.statistics->shape;
  require(node, statistics.rank() == 3 && statistics[2] == 3, "statistics must be f32[parts, N, 3]");
  require(node, node.in.targets->shape == Shape{statistics[1]}, "targets must be i32[N]");
}

void gradient_statistics(GradientBuilder& builder, const View<CrossEntropyStatistics>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId statistics = node.out.statistics, given = builder.gradient_of(statistics);
  const graph::InIds<CrossEntropyGradInput> of_input{.x = in.x,
                                                     .weight = in.weight,
                                                     .weight_of_dx = in.weight,
                                                     .targets = in.targets,
                                                     .statistics = statistics,
                                                     .dstatistics = given,
                                                     .bias = in.bias,
                                                     .vocab_start = in.vocab_start};
  if (node.attrs.one_gradient) {
    const ValueId dx = dx_of_loss(graph, *in.x);
    add_into<CrossEntropyGrad>(
        graph, of_input,
        {.dx = dx, .dw = builder.parameter_gradient(in.weight), .dbias = bias_gradient(builder, in.bias)},
        node.attrs);
    builder.add_gradient(in.x, dx);
    return;
  }
  if (builder.wants(in.x))
    builder.add_gradient(in.x, add<CrossEntropyGradInput>(graph, of_input, node.attrs).dx);
  builder.weight_grad();
  add_into<CrossEntropyGradWeight>(
      graph,
      {.x = in.x,
       .weight = in.weight,
       .targets = in.targets,
       .statistics = statistics,
       .dstatistics = given,
       .bias = in.bias,
       .vocab_start = in.vocab_start},
      {.dw = builder.parameter_gradient(in.weight), .dbias = bias_gradient(builder, in.bias)}, node.attrs);
}

// How rows are split, and, where a shard of the vocabulary knows where it begins, the vocabulary.
template <typename Op>
Splits<Op> splits_of_gradient(const View<Op>& node) {
  graph::Split<Op> rows{}, vocabulary{};
  rows.in.x = rows.in.targets = kS0;
  rows.in.statistics = rows.in.dstatistics = kS1;
  auto& in = vocabulary.in;
  in.weight = in.statistics = in.dstatistics = in.bias = in.vocab_start = kS0;
  if constexpr (requires { in.weight_of_dx; }) in.weight_of_dx = kS0;
  if constexpr (requires { rows.out.dx; }) {
    rows.out.dx = kS0;
    vocabulary.out.dx = kP;
  }
  if constexpr (requires { rows.out.dw; }) {
    rows.out.dw = rows.out.dbias = kP;
    vocabulary.out.dw = vocabulary.out.dbias = kS0;
  }
  return node.in.vocab_start ? Splits<Op>{rows, vocabulary} : Splits<Op>{rows};
}

}  // namespace

const OpDef LinearCrossEntropy::def = define<LinearCrossEntropy>({
    .name = "linear_cross_entropy",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<LinearCrossEntropy> {
      require_head(node);
      return loss_outputs<LinearCrossEntropy>(node.in.x->shape[0]);
    },
    .cost = cost_of_matmuls<1>,
    .placements = [](const auto&, Axis) -> Splits<LinearCrossEntropy> {
      return {{{.x = kS0, .weight = kR, .targets = kS0},
               {.sum = kP, .count = kP, .per_token = kS0, .greedy = kS0}}};
    },
    .gradient = gradient_linear_cross_entropy,
});

const OpDef LinearCrossEntropyTrain::def = define<LinearCrossEntropyTrain>({
    .name = "linear_cross_entropy_train",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<LinearCrossEntropyTrain> {
      require_head(node);
      require_seed(node);
      const Value& x = *node.in.x;
      return {.sum = {DType::kF64, {1}},
              .count = {DType::kI64, {1}},
              .dx = {x.dtype, x.shape},
              .dw = {DType::kF32, node.in.weight->shape},
              .dbias = bias_gradient(node)};
    },
    .cost = cost_of_matmuls<3>,
    .placements = [](const auto&, Axis) -> Splits<LinearCrossEntropyTrain> {
      return {{{.x = kS0, .weight = kR, .weight_of_dx = kR, .targets = kS0},
               {.sum = kP, .count = kP, .dx = kS0, .dw = kP, .dbias = kP}}};
    },
    .in_place = {{"dx", "x"}},
});

const OpDef CrossEntropyStatistics::def = define<CrossEntropyStatistics>({
    .name = "cross_entropy_statistics",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyStatistics> {
      require_parts(node);
      return {.statistics = {DType::kF32, {parts_of(node), node.in.x->shape[0], 3}}};
    },
    .cost = cost_of_matmuls<1>,
    // A shard of the vocabulary needs to know where it begins.
    .placements = [](const auto& node, Axis) -> Splits<CrossEntropyStatistics> {
      Splits<CrossEntropyStatistics> splits{{{.x = kS0, .weight = kR, .targets = kS0}, {.statistics = kS1}}};
      if (node.in.vocab_start)
        splits.push_back(
            {{.x = kR, .weight = kS0, .targets = kR, .bias = kS0, .vocab_start = kS0}, {.statistics = kS0}});
      return splits;
    },
    .gradient = gradient_statistics,
});

const OpDef CrossEntropyLoss::def = define<CrossEntropyLoss>({
    .name = "cross_entropy_loss",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyLoss> {
      require_reduction(node);
      return loss_outputs<CrossEntropyLoss>(node.in.targets->shape[0]);
    },
    .cost = [](const auto& node) { return streamed(node, 4); },
    .placements = [](const auto&, Axis) -> Splits<CrossEntropyLoss> {
      return {
          {{.statistics = kS1, .targets = kS0}, {.sum = kP, .count = kP, .per_token = kS0, .greedy = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto made =
              add<CrossEntropyLossGrad>(builder.graph(), {.statistics = node.in.statistics,
                                                          .targets = node.in.targets,
                                                          .seed = builder.gradient_of(node.out.sum)});
          builder.add_gradient(node.in.statistics, made.dstatistics);
        },
});

const OpDef CrossEntropyLossGrad::def = define<CrossEntropyLossGrad>({
    .name = "cross_entropy_loss_grad",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyLossGrad> {
      require_reduction(node);
      require_seed(node);
      return {.dstatistics = {DType::kF32, node.in.statistics->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 4); },
    .placements = [](const auto&, Axis) -> Splits<CrossEntropyLossGrad> {
      return {{{.statistics = kS1, .targets = kS0}, {.dstatistics = kS1}}};
    },
});

// Each gradient computes the logits again.
const OpDef CrossEntropyGradInput::def = define<CrossEntropyGradInput>({
    .name = "cross_entropy_grad_input",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyGradInput> {
      require_gradient(node);
      return {.dx = {node.in.x->dtype, node.in.x->shape}};
    },
    .cost = cost_of_matmuls<2>,
    .placements = [](const auto& node, Axis) { return splits_of_gradient(node); },
    .in_place = {{"dx", "x"}},
});

const OpDef CrossEntropyGradWeight::def = define<CrossEntropyGradWeight>({
    .name = "cross_entropy_grad_weight",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyGradWeight> {
      require_gradient(node);
      return {.dw = {DType::kF32, node.in.weight->shape}, .dbias = bias_gradient(node)};
    },
    .cost = cost_of_matmuls<2>,
    .placements = [](const auto& node, Axis) { return splits_of_gradient(node); },
});

const OpDef CrossEntropyGrad::def = define<CrossEntropyGrad>({
    .name = "cross_entropy_grad",
    .family = "loss",
    .infer = [](const auto& node) -> Outputs<CrossEntropyGrad> {
      require_gradient(node);
      return {.dx = {node.in.x->dtype, node.in.x->shape},
              .dw = {DType::kF32, node.in.weight->shape},
              .dbias = bias_gradient(node)};
    },
    .cost = cost_of_matmuls<3>,
    .placements = [](const auto& node, Axis) { return splits_of_gradient(node); },
    .in_place = {{"dx", "x"}},
});

namespace {

// The outputs of a loss of `tokens` tokens.
Loss loss_values(Graph& graph, int64_t tokens, const LossOptions& options) {
  using graph::MetricKind;
  const auto metric = [&](MetricKind kind, DType dtype, int64_t elements) {
    return graph.add_metric(kind, dtype, elements, options.number, options.prefix);
  };
  Loss loss{metric(MetricKind::kLossSum, DType::kF64, 1), metric(MetricKind::kTokenCount, DType::kI64, 1),
            kNone, kNone};
  if (options.per_token) {
    loss.per_token = metric(MetricKind::kTokenLoss, DType::kF32, tokens);
    loss.greedy = metric(MetricKind::kTokenGreedy, DType::kI32, tokens);
  }
  return loss;
}

template <typename Op>
graph::OutIds<Op> into(const Loss& loss) {
  return {.sum = loss.sum, .count = loss.count, .per_token = loss.per_token, .greedy = loss.greedy};
}

}  // namespace

Loss linear_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                          const LossOptions& options) {
  STRATA_CHECK(options.vocab_start == kNone, "the fused loss takes the whole vocabulary, not a part of it");
  const Loss loss = loss_values(graph, graph.value(x).shape[0], options);
  add_into<LinearCrossEntropy>(graph, {.x = x, .weight = weight, .targets = targets, .bias = options.bias},
                               into<LinearCrossEntropy>(loss), {options.softcap, options.target_share});
  return loss;
}

ValueId cross_entropy_statistics(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                                 const LossOptions& options) {
  return add<CrossEntropyStatistics>(graph,
                                     {.x = x,
                                      .weight = weight,
                                      .targets = targets,
                                      .bias = options.bias,
                                      .vocab_start = options.vocab_start},
                                     {.softcap = options.softcap,
                                      .vocabulary = graph.value(weight).shape[0],
                                      .one_gradient = options.one_gradient,
                                      .target_share = options.target_share})
      .statistics;
}

Loss loss_of_statistics(Graph& graph, ValueId statistics, ValueId targets, const LossOptions& options) {
  const Loss loss = loss_values(graph, graph.value(targets).shape[0], options);
  add_into<CrossEntropyLoss>(graph, {.statistics = statistics, .targets = targets},
                             into<CrossEntropyLoss>(loss));
  return loss;
}

Loss split_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                         const LossOptions& options) {
  return loss_of_statistics(graph, cross_entropy_statistics(graph, x, weight, targets, options), targets,
                            options);
}

}  // namespace strata::ops
