// Soft mixtures of experts, as ops/soft_experts defines them. Sums and softmaxes are fp32; the bits do not
// depend on the number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct SoftShape {
  int64_t groups = 1, rows = 1;      // rows: tokens per group
  int64_t slots = 1, of_expert = 1;  // per group; per expert
  int64_t columns = 0;
  DType dtype = DType::kF32;
  int64_t tokens() const { return groups * rows; }
};
int64_t soft_scratch_bytes(const SoftShape& shape);
void soft_dispatch(const SoftShape& shape, void* slots, int32_t* experts, const void* x, const float* logits,
                   void* scratch);
void soft_dispatch_backward(const SoftShape& shape, void* dx, float* d_logits, const void* d_slots,
                            const void* x, const float* logits, void* scratch);
void soft_combine(const SoftShape& shape, void* y, const void* h, const float* logits, void* scratch);
void soft_combine_backward(const SoftShape& shape, void* dh, float* d_logits, const void* dy, const void* h,
                           const float* logits, void* scratch);

}  // namespace strata::cpu
