// RMS norm of groups of channels with a gate (ops/gated_norm/gated_norm.h). x, gate, y, dy, dx, dgate have the shape's
// dtype (f32, bf16, fp16), all else is f32, as is arithmetic. The bits do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/gate_kind.h"

namespace strata::cpu {

struct GatedNormShape {
  int64_t rows = 0, groups = 1, size = 0;  // a row has `groups` groups of `size` channels
  bool is_shared = false;                  // the weight is [size], of all groups, not [groups · size]
  float eps = 1e-6f;
  bool gate_first = false;
  GateKind kind = GateKind::kSilu;
  DType dtype = DType::kF32;
  int64_t width() const { return groups * size; }
};

// means[rows]: null, or the mean square of each row, whose channels other ranks have too (groups = 1).
void gated_norm_forward(const GatedNormShape& shape, void* y, float* rstd, const void* x, const void* gate,
                        const float* weight, const float* means);
// dx may alias dy, dgate may alias gate. means: of what gated_norm_means() gives with dy.
void gated_norm_backward_input(const GatedNormShape& shape, void* dx, void* dgate, const void* dy,
                               const void* x, const void* gate, const float* weight, const float* rstd,
                               const float* means);
int64_t gated_norm_weight_scratch_bytes(const GatedNormShape& shape);
void gated_norm_backward_weight(const GatedNormShape& shape, float* dw, const void* dy, const void* x,
                                const void* gate, const float* rstd, bool accumulate, void* scratch);
// means[rows] = Σ v² / whole, or Σ v · dy · weight (· f(gate)) / whole if there is a dy.
void gated_norm_means(const GatedNormShape& shape, int64_t whole, float* means, const void* x,
                      const void* gate, const void* dy, const float* weight);

}  // namespace strata::cpu
