// The GPU device and its bindings: the cases of the op table run through the CUDA driver, whose twin executes the PTX that
// nvcc made, and agree with the reference kernels.
#include "device/open/open.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/bindings.h"
#include "device/gpu/bindings.h"
#include "device/op_run.h"
#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"
#include "optim/optimizer.h"
#include "tensor/update_scalars.h"

namespace strata::gpu_tests {
namespace {

using device::OpCase;
using ops::PlacedCase;
using ops::Tensor;

bool is_bound(const OpCase& one) {
  for (const device::Binding& row : device::gpu_kernels())
    if (row.op == one.op) return true;
  return false;
}

// An update in a step that is skipped.
std::optional<OpCase> skipped(const OpCase& one) {
  OpCase changed = one;
  for (device::Operand& operand : changed.inputs) {
    if (operand.dtype != DType::kU8 || operand.shape != Shape{optim::kScalarBytes} || !operand.content)
      continue;
    changed.name += "_skipped";
    operand.content = [scalars = operand.content](int64_t i) {
      return i == offsetof(UpdateScalars, skip) ? 1.0 : scalars(i);
    };
    return changed;
  }
  return std::nullopt;
}

// With operands apart, then as they may be placed.
std::vector<PlacedCase> bound_cases() {
  std::vector<PlacedCase> cases;
  const auto add = [&](const OpCase& one) {
    cases.push_back({one, one});
    for (PlacedCase& placed : ops::placed_cases(one)) cases.push_back(std::move(placed));
  };
  for (const OpCase& one : device::op_cases()) {
    if (!is_bound(one)) continue;
    add(one);
    if (const auto half = device::in_bf16(one)) add(*half);
    if (const auto idle = skipped(one)) add(*idle);
  }
  return cases;
}

// The forms of bound ops that have no kernel yet; docs/gpu.md lists them.
bool is_refused_form(std::string_view message) {
  constexpr std::string_view kForms[] = {"with means over ranks", "of a scaled loss", "to chosen keys",
                                         "with greatest scores"};
  return std::any_of(std::begin(kForms), std::end(kForms),
                     [&](std::string_view form) { return message.find(form) != message.npos; });
}

std::shared_ptr<device::Device> the_device() {
  static const std::shared_ptr<device::Device> kDevice = device::open(device::Kind::kCuda);
  return kDevice;
}

std::vector<Tensor> run_on_gpu(const OpCase& one, const std::vector<Tensor>& inputs, int poison) {
  return ops::run_case(
      one, inputs, [](graph::Graph graph) { return device::OpRun(std::move(graph), the_device()); }, poison);
}

class GpuOps : public testing::TestWithParam<PlacedCase> {};

TEST_P(GpuOps, AgreeWithTheReference) {
  const OpCase& one = GetParam().placed;
  const std::vector<Tensor> inputs = ops::inputs_of(one);
  std::vector<Tensor> found, clean;
  try {
    found = run_on_gpu(one, inputs, 0xff);
    clean = run_on_gpu(one, inputs, 0);
  } catch (const ConfigError& error) {
    ASSERT_TRUE(is_refused_form(error.what())) << error.what();
    GTEST_SKIP() << error.what();
  }
  const std::vector<Tensor> expected = ops::run_op(GetParam().apart, inputs, device::reference_bindings());
  ASSERT_EQ(found.size(), expected.size());
  for (size_t o = 0; o < found.size(); ++o) {
    if (std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(o)) != one.opaque.end()) continue;
    ASSERT_EQ(found[o].values.size(), expected[o].values.size());
    EXPECT_EQ(found[o].values, clean[o].values) << "output " << o << " depends on the content of memory";
    for (size_t i = 0; i < found[o].values.size(); ++i)
      ASSERT_TRUE(ops::is_near(found[o].values[i], expected[o].values[i], one.tolerance))
          << "output " << o << ", element " << i << ": " << found[o].values[i] << ", not "
          << expected[o].values[i];
  }
}

// What random numbers make must not differ between devices.
TEST(GpuRandom, HasTheProcessorsBits) {
  int compared = 0;
  for (const OpCase& one : device::op_cases()) {
    if (one.op->name != "jitter" && !one.name.starts_with("route_hashed")) continue;
    const std::vector<Tensor> inputs = ops::inputs_of(one);
    const Tensor found = run_on_gpu(one, inputs, 0xff).front(),
                 wanted = ops::run_op(one, inputs, device::cpu_bindings()).front();
    EXPECT_EQ(found.values, wanted.values) << one.name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

INSTANTIATE_TEST_SUITE_P(Table, GpuOps, testing::ValuesIn(bound_cases()),
                         [](const auto& one) { return one.param.placed.name; });

}  // namespace
}  // namespace strata::gpu_tests
