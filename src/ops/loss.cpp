#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// The bias is the input behind the targets.
void require_head(const NodeView& view, int targets) {
  require(view, view.in(0).shape[1] == view.in(1).shape[1],
          "the last axis of x must equal the last axis of the weight");
  require(view, view.in(targets).shape == Shape{view.in(0).shape[0]} && view.in(targets).dtype == DType::kI32,
          "targets must be i32[N]");
  if (view.has(targets + 1)) {
    const Value& bias = view.in(targets + 1);
    require(view, bias.shape == Shape{view.in(1).shape[0]} && bias.dtype == DType::kF32,
            "the bias must be f32 with one element a row of the weight");
    require(view, view.attrs<LinearCrossEntropyAttrs>().softcap == 0,
            "capped logits take no bias: leave out one of the two");
  }
}

std::vector<ValueSpec> infer(const NodeView& view) {
  require_head(view, LinearCrossEntropy::kTargets);
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

Cost cost(const NodeView& view) {
  return {logits_flops(view), graph::streamed_bytes(view) + logits_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView&) {
  return {{{kS0, kR, kS0, kR}, {kP, kP, kS0, kS0}}};
}

// The forward node is replaced: loss and gradients come from one instruction, so that logits are made once.
void gradient(GradientBuilder& builder, const Node& node) {
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
  require_head(view, LinearCrossEntropyTrain::kTargets);
  if (view.has(LinearCrossEntropyTrain::kSeed)) {
    const Value& seed = view.in(LinearCrossEntropyTrain::kSeed);
    require(view, seed.shape == Shape{1} && seed.dtype == DType::kF32, "the seed must be f32[1]");
  }
  const Value& x = view.in(LinearCrossEntropyTrain::kX);
  const Value& weight = view.in(LinearCrossEntropyTrain::kWeight);
  return {{"sum", DType::kF64, {1}},
          {"count", DType::kI64, {1}},
          {"dx", x.dtype, x.shape},
          {"dw", DType::kF32, weight.shape},
          {"dbias", DType::kF32, {weight.shape[0]}, {}, !view.has(LinearCrossEntropyTrain::kBias)}};
}

Cost cost_train(const NodeView& view) {
  return {3 * logits_flops(view), graph::streamed_bytes(view) + logits_bytes(view)};
}

std::vector<PlacementOption> placements_train(const NodeView&) {
  return {{{kS0, kR, kR, kS0, kR, kR}, {kP, kP, kS0, kP, kP}}};
}

}  // namespace

const OpDef kLinearCrossEntropy{"linear_cross_entropy", "loss", infer, cost, placements, gradient};
const OpDef kLinearCrossEntropyTrain{
    "linear_cross_entropy_train", "loss", infer_train, cost_train, placements_train, nullptr, {{2, 0}}};

Loss linear_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                          const LossOptions& options) {
  auto metric = [&](const char* name, DType dtype) {
    return graph.add_value({.name = options.prefix + name,
                            .dtype = dtype,
                            .shape = {1},
                            .role = graph::Role::kMetric,
                            .encoding = {},
                            .placements = {},
                            .segments = {}});
  };
  Loss loss{metric("loss_sum", DType::kF64), metric("token_count", DType::kI64), kNone, kNone};
  auto of_tokens = [&](const char* name, DType dtype) {
    return graph.add_value({.name = options.prefix + name,
                            .dtype = dtype,
                            .shape = {graph.value(x).shape[0]},
                            .role = graph::Role::kMetric,
                            .encoding = {},
                            .placements = {},
                            .segments = {}});
  };
  if (options.per_token) {
    loss.per_token = of_tokens("token_loss", DType::kF32);
    loss.greedy = of_tokens("token_greedy", DType::kI32);
  }
  graph.add_node_into(kLinearCrossEntropy, {x, weight, targets, options.bias},
                      {loss.sum, loss.count, loss.per_token, loss.greedy},
                      LinearCrossEntropyAttrs{options.softcap});
  return loss;
}

}  // namespace strata::ops
