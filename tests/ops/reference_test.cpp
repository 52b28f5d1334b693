// Compares the CPU kernels with the reference kernels, op by op, and checks that neither reads uninitialized
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"

namespace strata::ops {
namespace {

// The cases of the table; those with activations also in bf16.
std::vector<OpCase> cases_of_both_types() {
  std::vector<OpCase> cases = op_cases();
  for (const OpCase& one : op_cases()) {
    if (auto half = device::in_bf16(one)) cases.push_back(std::move(*half));
  }
  return cases;
}

std::vector<OpCase> cases_in_fp16() {
  std::vector<OpCase> cases;
  for (const OpCase& one : op_cases()) {
    if (auto half = device::in_fp16(one)) cases.push_back(std::move(*half));
  }
  return cases;
}

bool is_opaque(const OpCase& one, size_t output) {
  return std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(output)) != one.opaque.end();
}

// A run in memory filled with zeros, and one in memory filled with NaN.
struct TwoRuns {
  std::vector<Tensor> clean, poisoned;
};

TwoRuns run_twice(const OpCase& one, const std::vector<Tensor>& inputs,
                  std::span<const device::Binding> bindings, const hardware::DeviceSpec& device) {
  return {run_op(one, inputs, bindings, 0, device), run_op(one, inputs, bindings, 0xff, device)};
}

// A kernel must not read output or scratch before it writes them: the initial contents of memory must not
// change a bit.
void expect_poison_changes_nothing(const OpCase& one, const TwoRuns& runs) {
  ASSERT_EQ(runs.clean.size(), runs.poisoned.size());
  for (size_t o = 0; o < runs.clean.size(); ++o) {
    if (is_opaque(one, o)) continue;
    ASSERT_EQ(runs.clean[o].values, runs.poisoned[o].values) << "output " << o;
  }
}

void expect_of_reference(const OpCase& one, const std::vector<Tensor>& fast,
                         const std::vector<Tensor>& plain) {
  ASSERT_EQ(fast.size(), plain.size());
  for (size_t o = 0; o < fast.size(); ++o) {
    ASSERT_EQ(fast[o].values.size(), plain[o].values.size());
    for (size_t i = 0; i < fast[o].values.size() && !is_opaque(one, o); ++i) {
      const double wanted = plain[o].values[i];
      ASSERT_FALSE(std::isnan(wanted));
      ASSERT_TRUE(is_near(fast[o].values[i], wanted, one.tolerance))
          << "output " << o << ", element " << i << ": " << fast[o].values[i] << ", not " << wanted;
    }
  }
}

class Reference : public testing::TestWithParam<OpCase> {};

TEST_P(Reference, AgreesWithTheFastKernel) {
  const OpCase& one = GetParam();
  const std::vector<Tensor> inputs = inputs_of(one);
  const TwoRuns fast = run_twice(one, inputs, device::cpu_bindings(), one_thread()),
                plain = run_twice(one, inputs, device::reference_bindings(), one_thread());
  expect_of_reference(one, fast.poisoned, plain.poisoned);
  {
    SCOPED_TRACE("memory of the CPU's kernel");
    expect_poison_changes_nothing(one, fast);
  }
  {
    SCOPED_TRACE("memory of the reference kernel");
    expect_poison_changes_nothing(one, plain);
  }
}

// The kernels of bf16, on other elements: memory and places are tested there.
class ReferenceInFp16 : public testing::TestWithParam<OpCase> {};

TEST_P(ReferenceInFp16, AgreesWithTheFastKernel) {
  const OpCase& one = GetParam();
  const std::vector<Tensor> inputs = inputs_of(one);
  expect_of_reference(one, run_op(one, inputs, device::cpu_bindings(), 0xff, one_thread()),
                      run_op(one, inputs, device::reference_bindings(), 0xff, one_thread()));
}

// Outputs in the place of inputs.
class Placed : public testing::TestWithParam<PlacedCase> {};

void expect_same_bits(const PlacedCase& one, std::span<const device::Binding> bindings) {
  const std::vector<Tensor> inputs = inputs_of(one.apart);
  const std::vector<Tensor> expected = run_op(one.apart, inputs, bindings),
                            found = run_op(one.placed, inputs, bindings);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t o = 0; o < found.size(); ++o) {
    if (!is_opaque(one.apart, o)) {
      EXPECT_EQ(found[o].values, expected[o].values) << "output " << o;
    }
  }
}

TEST_P(Placed, HasTheSameBits) {
  expect_same_bits(GetParam(), device::cpu_bindings());
  SCOPED_TRACE("the reference kernel");
  if (!GetParam().apart.name.ends_with("_in_bf16"))
    expect_same_bits(GetParam(), device::reference_bindings());
}

std::vector<PlacedCase> placed_cases_of_both_types() {
  std::vector<PlacedCase> all;
  for (const OpCase& one : cases_of_both_types()) {
    for (PlacedCase& placed : placed_cases(one)) all.push_back(std::move(placed));
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, Placed, testing::ValuesIn(placed_cases_of_both_types()),
                         [](const auto& one) { return one.param.placed.name; });

// For processors with bf16 matmuls. Their kernels run here on models of the instructions: dot products,
// tiles.
TEST(BF16Matmuls, OfAttentionAgreeWithTheReference) {
  hardware::DeviceSpec device = one_thread();
  device.isa.avx512_bf16 = true;
  for (const bool tiles : {false, true}) {
    device.isa.amx = tiles;
    for (const OpCase& one : op_cases()) {
      const std::string_view op = one.op->name;
      if (op.find("attention") == op.npos || op == "cached_latent_attention") continue;
      const auto half = device::in_bf16(one);
      if (!half) continue;
      SCOPED_TRACE(half->name);
      const std::vector<Tensor> inputs = inputs_of(*half);
      expect_of_reference(*half, run_op(*half, inputs, device::cpu_bindings(), 0xff, device),
                          run_op(*half, inputs, device::reference_bindings()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Reference, testing::ValuesIn(cases_of_both_types()),
                         [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(Ops, ReferenceInFp16, testing::ValuesIn(cases_in_fp16()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace strata::ops
