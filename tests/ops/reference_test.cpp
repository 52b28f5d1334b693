// The CPU's kernels against the reference kernels, op by op, and what both leave alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"

namespace strata::ops {
namespace {

// The cases of the table, and those that have activations once more with bf16.
std::vector<OpCase> cases_of_both_types() {
  std::vector<OpCase> cases = op_cases();
  for (const OpCase& one : op_cases()) {
    if (auto half = device::in_bf16(one)) cases.push_back(std::move(*half));
  }
  return cases;
}

bool is_opaque(const OpCase& one, size_t output) {
  return std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(output)) != one.opaque.end();
}

class Reference : public testing::TestWithParam<OpCase> {};

// What a kernel of `device` gives on this machine.
void expect_of_reference(const OpCase& one, const hardware::DeviceSpec& device) {
  const std::vector<Tensor> inputs = inputs_of(one);
  const auto fast = run_op(one, inputs, device::cpu_bindings(), 0xff, device),
             plain = run_op(one, inputs, device::reference_bindings());
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

TEST_P(Reference, GivesWhatTheFastKernelGives) {
  expect_of_reference(GetParam(), one_thread());
}

// On processors that multiply bf16, whose kernels run here on models of the instructions: pairs, and tiles.
TEST(BF16Products, OfAttentionGiveWhatTheReferenceGives) {
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
      expect_of_reference(*half, device);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Reference, testing::ValuesIn(cases_of_both_types()),
                         [](const auto& one) { return one.param.name; });

class Poison : public testing::TestWithParam<OpCase> {};

// A kernel reads no output and no scratch that it did not write: what lies there before changes no bit.
TEST_P(Poison, OfOutputsAndScratchChangesNothing) {
  const OpCase& one = GetParam();
  const std::vector<Tensor> inputs = inputs_of(one);
  for (const auto bindings : {device::cpu_bindings(), device::reference_bindings()}) {
    const auto clean = run_op(one, inputs, bindings, 0), poisoned = run_op(one, inputs, bindings, 0xff);
    ASSERT_EQ(clean.size(), poisoned.size());
    for (size_t o = 0; o < clean.size(); ++o) {
      if (is_opaque(one, o)) continue;
      ASSERT_EQ(clean[o].values, poisoned[o].values) << "output " << o;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Poison, testing::ValuesIn(cases_of_both_types()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace strata::ops
