#include "base/error.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// `softcap`: of the logits.
void require_head(const NodeView& view, int targets, int bias_at, double softcap) {
  require(view, view.in(0).shape[1] == view.in(1).shape[1],
          "the last axis of x must equal the last axis of the weight");
  require(view, view.in(targets).shape == Shape{view.in(0).shape[0]} && view.in(targets).dtype == DType::kI32,
          "targets must be i32[N]");
  if (view.has(bias_at)) {
    const Value& bias = view.in(bias_at);
    require(view, bias.shape == Shape{view.in(1).shape[0]} && bias.dtype == DType::kF32,
            "the bias must be f32 with one element a row of the weight");
    require(view, softcap == 0, "capped logits take no bias: leave out one of the two");
  }
}

void require_seed(const NodeView& view, int seed) {
  if (!view.has(seed)) return;
  require(view, view.in(seed).shape == Shape{1} && view.in(seed).dtype == DType::kF32,
          "the seed must be f32[1]");
}

std::vector<ValueSpec> infer(const NodeView& view) {
  require_head(view, LinearCrossEntropy::kTargets, LinearCrossEntropy::kBias,
               view.attrs<LinearCrossEntropyAttrs>().softcap);
  return {{"sum", DType::kF64, {1}},
          {"count", DType::kI64, {1}},
          {"per_token", DType::kF32, {view.in(LinearCrossEntropy::kX).shape[0]}},
          {"greedy", DType::kI32, {view.in(LinearCrossEntropy::kX).shape[0]}}};
}

double logits_flops(const NodeView& view) {
  return 2.0 * static_cast<double>(view.in(0).shape[0]) * static_cast<double>(view.in(1).shape.elements());
}

// The logits are never whole in memory, but each is written and read once on its way through the cache.
double logits_bytes(const NodeView& view) {
  return 8.0 * static_cast<double>(view.in(0).shape[0]) * static_cast<double>(view.in(1).shape[0]);
}

// Of so many products of the head's size. Tokens without a target are left out. How fast it is depends on
// what is computed for each logit, so on the width, not on how many tokens share the weights.
template <typename Attrs, int products>
Cost cost_of_products(const NodeView& view) {
  const double share = view.attrs<Attrs>().target_share;
  const double streamed = graph::streamed_bytes(view);
  return {.flops = products * share * logits_flops(view),
          .bytes = streamed + share * logits_bytes(view),
          .beside_bytes = streamed};
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0, kR, kS0, kR}, {kP, kP, kS0, kS0}}};
}

// Loss and gradients come from one instruction, so that logits are made once.
void gradient(GradientBuilder& builder, const Node& node) {
  builder.replace_forward();
  Graph& graph = builder.graph();
  const Value& x = graph.value(node.inputs[LinearCrossEntropy::kX]);
  const ValueId dx = graph.add_value({.name = "loss.dx",
                                      .dtype = x.dtype,
                                      .shape = x.shape,
                                      .encoding = {},
                                      .placements = {},
                                      .segments = {}});
  const ValueId bias = node.inputs[LinearCrossEntropy::kBias];
  const ValueId weight = node.inputs[LinearCrossEntropy::kWeight];
  graph.add_node_into(
      kLinearCrossEntropyTrain,
      {node.inputs[LinearCrossEntropy::kX], weight, weight, node.inputs[LinearCrossEntropy::kTargets], bias,
       builder.gradient_of(node.outputs[LinearCrossEntropy::kSum])},
      {node.outputs[LinearCrossEntropy::kSum], node.outputs[LinearCrossEntropy::kCount], dx,
       builder.parameter_gradient(weight), bias != kNone ? builder.parameter_gradient(bias) : kNone},
      node.attrs);
  builder.add_gradient(node.inputs[LinearCrossEntropy::kX], dx);
}

std::vector<ValueSpec> infer_train(const NodeView& view) {
  require_head(view, LinearCrossEntropyTrain::kTargets, LinearCrossEntropyTrain::kBias,
               view.attrs<LinearCrossEntropyAttrs>().softcap);
  require_seed(view, LinearCrossEntropyTrain::kSeed);
  const Value& x = view.in(LinearCrossEntropyTrain::kX);
  const Value& weight = view.in(LinearCrossEntropyTrain::kWeight);
  return {{"sum", DType::kF64, {1}},
          {"count", DType::kI64, {1}},
          {"dx", x.dtype, x.shape},
          {"dw", DType::kF32, weight.shape},
          {"dbias", DType::kF32, {weight.shape[0]}, {}, !view.has(LinearCrossEntropyTrain::kBias)}};
}

std::vector<PlacementOption> placements_train(const NodeView&, Axis) {
  return {{{kS0, kR, kR, kS0, kR, kR}, {kP, kP, kS0, kP, kP}}};
}

// --- The split form

// Parts of the vocabulary in the weight.
int64_t parts_of(const NodeView& view, int vocab_start) {
  return view.has(vocab_start) ? view.in(vocab_start).shape[0] : 1;
}

void require_parts(const NodeView& view, int targets, int bias, int vocab_start) {
  const auto& attrs = view.attrs<CrossEntropyAttrs>();
  require_head(view, targets, bias, attrs.softcap);
  const int64_t rows = view.in(CrossEntropyStatistics::kWeight).shape[0];
  if (!view.has(vocab_start)) {
    require(view, attrs.vocabulary == rows,
            "without vocab_start the weight must have one row a token of the vocabulary");
    return;
  }
  const Value& start = view.in(vocab_start);
  require(view, start.dtype == DType::kI32 && start.shape.rank() == 1 && start.shape[0] > 0,
          "vocab_start must be i32[parts]");
  const bool divides =
      rows % start.shape[0] == 0 ||
      view.in(CrossEntropyStatistics::kWeight).padding.uneven.has_value();  // as ranks have it
  require(view, divides && attrs.vocabulary >= rows,
          "the weight must be parts of equal size of the vocabulary");
}

void require_statistics(const NodeView& view, int statistics, int64_t parts, int64_t tokens) {
  const Value& value = view.in(statistics);
  require(view, value.shape == Shape{parts, tokens, 3} && value.dtype == DType::kF32,
          "statistics and their gradient must be f32[parts, N, 3]");
}

std::vector<ValueSpec> infer_statistics(const NodeView& view) {
  using Op = CrossEntropyStatistics;
  require_parts(view, Op::kTargets, Op::kBias, Op::kVocabStart);
  return {{"statistics", DType::kF32, {parts_of(view, Op::kVocabStart), view.in(Op::kX).shape[0], 3}}};
}

// A shard of the vocabulary needs to know where it begins.
std::vector<PlacementOption> placements_statistics(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kS0, kR, kR}, {kS1}}};
  if (view.has(CrossEntropyStatistics::kVocabStart)) options.push_back({{kR, kS0, kR, kS0, kS0}, {kS0}});
  return options;
}

void gradient_statistics(GradientBuilder& builder, const Node& node) {
  using Op = CrossEntropyStatistics;
  Graph& graph = builder.graph();
  const ValueId x = node.inputs[Op::kX], weight = node.inputs[Op::kWeight], bias = node.inputs[Op::kBias];
  const ValueId targets = node.inputs[Op::kTargets], start = node.inputs[Op::kVocabStart];
  const ValueId statistics = node.outputs[Op::kStatistics], given = builder.gradient_of(statistics);
  if (node.attrs.as<CrossEntropyAttrs>().one_gradient) {
    const Value& like = graph.value(x);
    const ValueId dx = graph.add_value(
        {.name = "loss.dx", .dtype = like.dtype, .shape = like.shape, .encoding = {}, .placements = {}});
    graph.add_node_into(
        kCrossEntropyGrad, {x, weight, weight, targets, statistics, given, bias, start},
        {dx, builder.parameter_gradient(weight), bias != kNone ? builder.parameter_gradient(bias) : kNone},
        node.attrs);
    builder.add_gradient(x, dx);
    return;
  }
  if (builder.wants(x)) {
    builder.add_gradient(
        x, graph.add_node(kCrossEntropyGradInput,
                          {x, weight, weight, targets, statistics, given, bias, start}, node.attrs)[0]);
  }
  builder.weight_grad();
  graph.add_node_into(
      kCrossEntropyGradWeight, {x, weight, targets, statistics, given, bias, start},
      {builder.parameter_gradient(weight), bias != kNone ? builder.parameter_gradient(bias) : kNone},
      node.attrs);
}

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  using Op = CrossEntropyGradInput;
  require_parts(view, Op::kTargets, Op::kBias, Op::kVocabStart);
  const Value& x = view.in(Op::kX);
  for (const int statistics : {Op::kStatistics, Op::kDstatistics})
    require_statistics(view, statistics, parts_of(view, Op::kVocabStart), x.shape[0]);
  return {{"dx", x.dtype, x.shape}};
}

std::vector<PlacementOption> placements_grad_input(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kR, kS0, kS1, kS1, kR, kR}, {kS0}}};
  if (view.has(CrossEntropyGradInput::kVocabStart))
    options.push_back({{kR, kS0, kS0, kR, kS0, kS0, kS0, kS0}, {kP}});
  return options;
}

std::vector<ValueSpec> infer_grad_weight(const NodeView& view) {
  using Op = CrossEntropyGradWeight;
  require_parts(view, Op::kTargets, Op::kBias, Op::kVocabStart);
  for (const int statistics : {Op::kStatistics, Op::kDstatistics})
    require_statistics(view, statistics, parts_of(view, Op::kVocabStart), view.in(Op::kX).shape[0]);
  const Shape& weight = view.in(Op::kWeight).shape;
  return {{"dw", DType::kF32, weight}, {"dbias", DType::kF32, {weight[0]}, {}, !view.has(Op::kBias)}};
}

std::vector<PlacementOption> placements_grad_weight(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kS0, kS1, kS1, kR, kR}, {kP, kP}}};
  if (view.has(CrossEntropyGradWeight::kVocabStart))
    options.push_back({{kR, kS0, kR, kS0, kS0, kS0, kS0}, {kS0, kS0}});
  return options;
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  using Op = CrossEntropyGrad;
  std::vector<ValueSpec> specs = infer_grad_input(view);
  const Shape& weight = view.in(Op::kWeight).shape;
  specs.push_back({"dw", DType::kF32, weight});
  specs.push_back({"dbias", DType::kF32, {weight[0]}, {}, !view.has(Op::kBias)});
  return specs;
}

std::vector<PlacementOption> placements_grad(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kR, kS0, kS1, kS1, kR, kR}, {kS0, kP, kP}}};
  if (view.has(CrossEntropyGrad::kVocabStart))
    options.push_back({{kR, kS0, kS0, kR, kS0, kS0, kS0, kS0}, {kP, kS0, kS0}});
  return options;
}

// Statistics and targets are the first operands of both.
void require_reduction(const NodeView& view) {
  using Op = CrossEntropyLoss;
  const Value& statistics = view.in(Op::kStatistics);
  require(view, statistics.shape.rank() == 3, "statistics must be f32[parts, N, 3]");
  require_statistics(view, Op::kStatistics, statistics.shape[0], statistics.shape[1]);
  require(
      view,
      view.in(Op::kTargets).shape == Shape{statistics.shape[1]} && view.in(Op::kTargets).dtype == DType::kI32,
      "targets must be i32[N]");
}

std::vector<ValueSpec> infer_loss(const NodeView& view) {
  require_reduction(view);
  const int64_t tokens = view.in(CrossEntropyLoss::kTargets).shape[0];
  return {{"sum", DType::kF64, {1}},
          {"count", DType::kI64, {1}},
          {"per_token", DType::kF32, {tokens}},
          {"greedy", DType::kI32, {tokens}}};
}

Cost cost_loss(const NodeView& view) {
  return streamed(view, 4);
}

std::vector<PlacementOption> placements_loss(const NodeView&, Axis) {
  return {{{kS1, kS0}, {kP, kP, kS0, kS0}}};
}

void gradient_loss(GradientBuilder& builder, const Node& node) {
  using Op = CrossEntropyLoss;
  const ValueId statistics = node.inputs[Op::kStatistics];
  builder.add_gradient(
      statistics,
      builder.graph().add_node(kCrossEntropyLossGrad, {statistics, node.inputs[Op::kTargets],
                                                       builder.gradient_of(node.outputs[Op::kSum])})[0]);
}

std::vector<ValueSpec> infer_loss_grad(const NodeView& view) {
  require_reduction(view);
  require_seed(view, CrossEntropyLossGrad::kSeed);
  return {{"dstatistics", DType::kF32, view.in(CrossEntropyLossGrad::kStatistics).shape}};
}

std::vector<PlacementOption> placements_loss_grad(const NodeView&, Axis) {
  return {{{kS1, kS0, kR}, {kS1}}};
}

}  // namespace

const OpDef kLinearCrossEntropy{"linear_cross_entropy",
                                "loss",
                                infer,
                                cost_of_products<LinearCrossEntropyAttrs, 1>,
                                placements,
                                gradient};
const OpDef kLinearCrossEntropyTrain{"linear_cross_entropy_train",
                                     "loss",
                                     infer_train,
                                     cost_of_products<LinearCrossEntropyAttrs, 3>,
                                     placements_train,
                                     nullptr,
                                     {{2, 0}}};

// Of the gradients each makes the logits once more.
const OpDef kCrossEntropyStatistics{"cross_entropy_statistics", "loss",
                                    infer_statistics,           cost_of_products<CrossEntropyAttrs, 1>,
                                    placements_statistics,      gradient_statistics};
const OpDef kCrossEntropyLoss{"cross_entropy_loss", "loss",       infer_loss, cost_loss,
                              placements_loss,      gradient_loss};
const OpDef kCrossEntropyLossGrad{"cross_entropy_loss_grad", "loss", infer_loss_grad, cost_loss,
                                  placements_loss_grad};
const OpDef kCrossEntropyGradInput{"cross_entropy_grad_input",
                                   "loss",
                                   infer_grad_input,
                                   cost_of_products<CrossEntropyAttrs, 2>,
                                   placements_grad_input,
                                   nullptr,
                                   {{CrossEntropyGradInput::kDx, CrossEntropyGradInput::kX}}};
const OpDef kCrossEntropyGradWeight{"cross_entropy_grad_weight", "loss", infer_grad_weight,
                                    cost_of_products<CrossEntropyAttrs, 2>, placements_grad_weight};
const OpDef kCrossEntropyGrad{"cross_entropy_grad",
                              "loss",
                              infer_grad,
                              cost_of_products<CrossEntropyAttrs, 3>,
                              placements_grad,
                              nullptr,
                              {{CrossEntropyGrad::kDx, CrossEntropyGrad::kX}}};

namespace {

// The values that a loss of `tokens` tokens gives.
Loss loss_values(Graph& graph, int64_t tokens, const LossOptions& options) {
  const auto metric = [&](const char* name, DType dtype, int64_t elements) {
    return graph.add_value({.name = options.prefix + name,
                            .dtype = dtype,
                            .shape = {elements},
                            .role = graph::Role::kMetric,
                            .encoding = {},
                            .placements = {},
                            .segments = {}});
  };
  Loss loss{metric("loss_sum", DType::kF64, 1), metric("token_count", DType::kI64, 1), kNone, kNone};
  if (options.per_token) {
    loss.per_token = metric("token_loss", DType::kF32, tokens);
    loss.greedy = metric("token_greedy", DType::kI32, tokens);
  }
  return loss;
}

}  // namespace

Loss linear_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                          const LossOptions& options) {
  STRATA_CHECK(options.vocab_start == kNone, "the fused loss takes the whole vocabulary, not a part of it");
  const Loss loss = loss_values(graph, graph.value(x).shape[0], options);
  graph.add_node_into(kLinearCrossEntropy, {x, weight, targets, options.bias},
                      {loss.sum, loss.count, loss.per_token, loss.greedy},
                      LinearCrossEntropyAttrs{options.softcap, options.target_share});
  return loss;
}

ValueId cross_entropy_statistics(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                                 const LossOptions& options) {
  return graph.add_node(kCrossEntropyStatistics, {x, weight, targets, options.bias, options.vocab_start},
                        CrossEntropyAttrs{.softcap = options.softcap,
                                          .vocabulary = graph.value(weight).shape[0],
                                          .one_gradient = options.one_gradient,
                                          .target_share = options.target_share})[0];
}

Loss loss_of_statistics(Graph& graph, ValueId statistics, ValueId targets, const LossOptions& options) {
  const Loss loss = loss_values(graph, graph.value(targets).shape[0], options);
  graph.add_node_into(kCrossEntropyLoss, {statistics, targets},
                      {loss.sum, loss.count, loss.per_token, loss.greedy});
  return loss;
}

Loss split_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                         const LossOptions& options) {
  return loss_of_statistics(graph, cross_entropy_statistics(graph, x, weight, targets, options), targets,
                            options);
}

}  // namespace strata::ops
