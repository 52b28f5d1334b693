// The CPU's kernels against the plain ones, op by op.
#include <gtest/gtest.h>

#include <cmath>

#include "device/reference/bindings.h"
#include "fixtures/op_tensors.h"
#include "ops/ops.h"

namespace strata::ops {
namespace {

class Reference : public testing::TestWithParam<OpCase> {};

TEST_P(Reference, GivesWhatTheFastKernelGives) {
  const OpCase& one = GetParam();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < one.inputs.size(); ++i) inputs.push_back(tensor_of(one.inputs[i], i + 1));
  const auto fast = run_op(one, inputs), plain = run_op(one, inputs, device::reference_bindings());
  ASSERT_EQ(fast.size(), plain.size());
  for (size_t o = 0; o < fast.size(); ++o) {
    ASSERT_EQ(fast[o].values.size(), plain[o].values.size());
    for (size_t i = 0; i < fast[o].values.size(); ++i) {
      const double wanted = plain[o].values[i];
      ASSERT_FALSE(std::isnan(wanted));
      ASSERT_TRUE(is_near(fast[o].values[i], wanted, one.tolerance))
          << "output " << o << ", element " << i << ": " << fast[o].values[i] << ", not " << wanted;
    }
  }
}

// The cases of the table, and those whose activations may be bf16 once more with it.
std::vector<OpCase> cases_of_both_types() {
  std::vector<OpCase> cases = op_cases();
  for (OpCase one : op_cases()) {
    bool changed = false;
    const bool caches =
        one.op == &kCachedAttention || one.op == &kCachedCrossAttention || one.op == &kStoreCross;
    for (Operand& operand : one.inputs) {
      // Of the decoder's 24 tokens, or of the 40 that it reads.
      const bool tokens = operand.shape.rank() == 2 && (operand.shape[0] == 24 || operand.shape[0] == 40);
      if (operand.dtype != DType::kF32 || operand.absent || operand.always_f32) continue;
      if (!tokens && !(caches && operand.shape.rank() == 3)) continue;
      operand.dtype = DType::kBF16;
      changed = true;
    }
    if (one.op == &kEmbedding) {
      one.attrs.set("bf16", int64_t{1});
      changed = true;
    }
    if (!changed) continue;
    one.name += "_in_bf16";
    one.tolerance = 2e-2;
    cases.push_back(std::move(one));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, Reference, testing::ValuesIn(cases_of_both_types()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace strata::ops
