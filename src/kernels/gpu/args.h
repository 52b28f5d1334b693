// The parameters of the GPU's kernels: one struct each, as host and device both see it. Pointers are addresses of device memory; sizes
// and strides count elements. Rows are dense where no stride is given.
#pragma once

#include <cstdint>

namespace strata::gpu {

// c[m][n] (+)= a · b (+ bias[n]). Kernels are named by how their operands lie:
//   nt  a[m][k], b[n][k]   a linear layer's forward
//   nn  a[m][k], b[k][n]   its input gradient
//   tn  a[k][m], b[k][n]   its weight gradient
struct GemmArgs {
  const void* a;
  const void* b;
  void* c;
  const float* bias;  // may be null
  int64_t a_stride, b_stride, c_stride;
  int32_t m, n, k;
  int32_t accumulate;  // c += instead of c =
  // The depth is cut into `splits` parts of `split_depth` (a multiple of 64), whose sums lie one after another in fp32 from c on;
  // gemm_sum adds them in order. 1: c is the result.
  int32_t splits, split_depth;
};
// c[m][n] (+)= Σ parts (+ bias[n]), parts[splits][m][n].
struct GemmSumArgs {
  const float* parts;
  void* c;
  const float* bias;
  int64_t c_stride;
  int32_t m, n, splits, accumulate;
};

}  // namespace strata::gpu
