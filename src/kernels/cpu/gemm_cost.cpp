#include "kernels/cpu/gemm.h"

namespace strata::cpu {

GemmCost gemm_cost(const GemmSpec& spec) {
  const auto m = static_cast<double>(spec.m);
  const auto n = static_cast<double>(spec.n);
  const auto k = static_cast<double>(spec.k);
  const auto in = static_cast<double>(size_of(spec.dtype));
  const auto out = static_cast<double>(size_of(spec.out_dtype));
  GemmCost cost{.flops = 2.0 * m * n * k};
  switch (spec.role) {
    case GemmRole::kForward:
      cost.bytes = in * (m * k + n * k) + out * m * n + (spec.bias ? 4.0 * n : 0.0);
      break;
    case GemmRole::kInputGrad:
      cost.bytes = in * (m * n + n * k) + out * m * k;
      break;
    case GemmRole::kWeightGrad:
      cost.bytes = in * (m * n + m * k) + 4.0 * n * k * (spec.accumulate ? 2.0 : 1.0);
      break;
  }
  return cost;
}

}  // namespace strata::cpu
