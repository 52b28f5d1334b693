// Compares each op's gradient with central differences, for every row of the table whose op has a gradient:
// the nodes added by its rule, run by the CPU kernels, against differences of the reference kernels' results.
#include <gtest/gtest.h>

#include <cmath>

#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"
#include "graph/differentiate.h"
#include "ops/context_attention/context_attention.h"

namespace strata::ops {
namespace {

using graph::kNone;
using graph::ValueId;

// The gradient of output `o` of the case; the loss, where the backward starts, has none.
Tensor given(const Tensor& output, size_t o) {
  Tensor gradient = output;
  gradient.dtype = DType::kF32;
  for (size_t i = 0; i < gradient.values.size(); ++i)
    gradient.values[i] = static_cast<double>(static_cast<float>(pseudo_random((o + 1) * 65537 + i)));
  return gradient;
}

// The sum of the outputs, weighted with their gradients.
double objective(const OpCase& one, const std::vector<Tensor>& inputs) {
  const auto outputs = run_op(one, inputs, device::reference_bindings());
  double sum = 0;
  for (const int o : one.differentiable) {
    const Tensor& output = outputs[static_cast<size_t>(o)];
    if (output.dtype == DType::kF64) {  // a loss
      sum += output.values[0];
      continue;
    }
    const Tensor weights = given(output, static_cast<size_t>(o));
    for (size_t i = 0; i < output.values.size(); ++i) sum += weights.values[i] * output.values[i];
  }
  return sum;
}

// The gradient of every input according to the op's rule; empty for an input without a gradient.
std::vector<Tensor> gradients_of(const OpCase& one, const std::vector<Tensor>& inputs) {
  device::OpGraph made = device::graph_of(one, operands_of(one, inputs));
  graph::Graph& graph = made.graph;
  std::vector<std::pair<ValueId, Tensor>> seeds;
  for (const ValueId id : made.inputs)
    if (id != kNone) graph.parameters().push_back({id, kNone, {}});
  const auto outputs = run_op(one, inputs, device::reference_bindings());
  for (const int o : one.differentiable) {
    const Tensor& output = outputs[static_cast<size_t>(o)];
    if (output.dtype == DType::kF64) continue;
    Tensor seed = given(output, static_cast<size_t>(o));
    seeds.emplace_back(
        device::add_operand(graph, "seed" + std::to_string(o), seed.dtype, seed.shape, seed.segments), seed);
  }
  graph::GradientBuilder builder(graph);
  for (size_t i = 0; i < seeds.size(); ++i)
    builder.add_gradient(made.outputs[static_cast<size_t>(one.differentiable[i])], seeds[i].first);
  const graph::Node node = graph.nodes()[0];
  node.op->gradient(builder, node);
  std::vector<ValueId> found;
  for (const ValueId id : made.inputs) {
    ValueId gradient = id == kNone ? kNone : builder.gradient_of(id);
    for (const graph::Parameter& parameter : graph.parameters()) {
      if (parameter.value == id && parameter.gradient != kNone) gradient = parameter.gradient;
    }
    found.push_back(gradient);
  }
  // A fused loss uses its training form.
  if (builder.take_replaced()) graph.nodes().erase(graph.nodes().begin());
  device::OpRun run(std::move(graph), device::cpu_bindings(), one_thread());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].absent) store(inputs[i], run.data(made.inputs[i]));
  }
  for (const auto& [id, seed] : seeds) store(seed, run.data(id));
  run.encode();
  run.run();
  std::vector<Tensor> gradients;
  for (const ValueId id : found)
    gradients.push_back(id == kNone ? Tensor{} : load(run.graph().value(id), run.data(id)));
  return gradients;
}

class Differences : public testing::TestWithParam<OpCase> {};

TEST_P(Differences, FollowTheGradient) {
  const OpCase& one = GetParam();
  std::vector<Tensor> inputs = inputs_of(one);
  const std::vector<Tensor> gradients = gradients_of(one, inputs);
  constexpr double kStep = 4e-3;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool numbers = inputs[i].dtype == DType::kF32 && !inputs[i].absent && !one.inputs[i].constant;
    ASSERT_EQ(!gradients[i].values.empty(), numbers) << "input " << i;
    if (!numbers) continue;
    const std::vector<double> before = inputs[i].values;
    for (uint64_t direction = 1; direction <= 2; ++direction) {
      const auto toward = [&](size_t k) { return pseudo_random(direction * 104729 + i * 331 + k); };
      double along = 0, length = 0;
      for (size_t k = 0; k < before.size(); ++k) {
        along += toward(k) * gradients[i].values[k];
        length += std::abs(toward(k) * gradients[i].values[k]);
      }
      const auto at = [&](double step) {
        for (size_t k = 0; k < before.size(); ++k) inputs[i].values[k] = before[k] + step * toward(k);
        return objective(one, inputs);
      };
      const double measured = (at(kStep) - at(-kStep)) / (2 * kStep);
      inputs[i].values = before;
      // A row of one column equals its mean, so the gradient of the norm's weight is zero.
      EXPECT_TRUE(length > 0 || one.ragged) << "input " << i;
      EXPECT_NEAR(measured, along, 1e-3 * length + 2e-3) << "input " << i << ", direction " << direction;
    }
  }
}

std::vector<OpCase> cases_with_gradient() {
  std::vector<OpCase> cases;
  for (const OpCase& one : op_cases()) {
    if (one.op->gradient != nullptr && !one.differentiable.empty()) cases.push_back(one);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, Differences, testing::ValuesIn(cases_with_gradient()),
                         [](const auto& one) { return one.param.name; });

// A row may omit differences, an op may not.
TEST(EveryOp, WithAGradientHasDifferences) {
  for (const graph::OpDef* op : graph::all_ops()) {
    if (op->gradient == nullptr || !op->has_kernel()) continue;
    if (op == &MergeAttention::def) continue;  // its gradient passes around the ranks: tests of meshes
    bool found = false;
    for (const OpCase& one : cases_with_gradient()) found = found || one.op == op;
    EXPECT_TRUE(found) << op->name;
  }
}

}  // namespace
}  // namespace strata::ops
