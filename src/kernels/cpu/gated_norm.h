// RMS norm of groups of columns with a gate (ops/gated_norm). x, gate, y, dy and gradients of these have
// shape.dtype, all else is fp32, as is arithmetic. Results are bit-identical for any number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/gate_kind.h"

namespace strata::cpu {

struct GatedNormShape {
  int64_t rows = 0, groups = 1;
  int64_t width = 0;  // columns of a group
  float eps = 1e-5f;
  bool gate_first = false;          // h = x · f(gate) is normalised; else h = x, and the gate follows
  GateKind gate = GateKind::kSilu;  // or kSigmoid
  bool shared = true;               // the weight is [width], else [groups · width]
  DType dtype = DType::kF32;
};

// y[rows, groups · width] and rstd[rows, groups]. y may alias x or gate. `means`[rows]: the mean squares over
// all ranks, if other ranks have the rest of the only group.
void gated_norm_forward(const GatedNormShape& shape, void* y, float* rstd, const void* x, const void* gate,
                        const float* weight, const float* means);
// dx and dgate, of which each may alias one of dy, x and gate. `means`: of h · the gradient of h · rstd.
void gated_norm_backward_input(const GatedNormShape& shape, void* dx, void* dgate, const void* dy,
                               const void* x, const void* gate, const float* rstd, const float* weight,
                               const float* means);
// This rank's contribution to `means`, where the group is `whole` columns wide: of h², or, if dy is not
// nullptr, of h · dy · weight (· f(gate) where the gate follows).
void gated_norm_means(const GatedNormShape& shape, int64_t whole, float* means, const void* x,
                      const void* gate, const void* dy, const float* weight);
// dw = (accumulate ? dw : 0) + sums over rows, and over groups that share the weight. Scratch: uninitialised.
int64_t gated_norm_weight_scratch_bytes(const GatedNormShape& shape);
void gated_norm_backward_weight(const GatedNormShape& shape, float* dw, const void* dy, const void* x,
                                const void* gate, const float* rstd, bool accumulate, void* scratch);

}  // namespace strata::cpu
