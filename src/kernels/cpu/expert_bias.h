// Biases of experts (ops/experts.h). Rows have the given dtype (f32 or bf16), biases and sums are fp32; sums
// have the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct ExpertBiasShape {
  int64_t tokens = 0, k = 1, experts = 1, columns = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;  // of the gradient of biases
};

// weights[tokens, k] null: x and y have a row a slot, to which its expert's bias is added; else a row a
// token, to which the weighted biases of its slots are. y may alias x.
void add_expert_bias(const ExpertBiasShape& shape, void* y, const void* x, const int32_t* ids,
                     const float* weights, const float* bias);
void expert_bias_gradient(const ExpertBiasShape& shape, float* d_bias, const void* dy, const int32_t* ids,
                          const float* weights);
// d_weights[token, slot] = dy[token] · bias of the slot's expert.
void expert_bias_weights_gradient(const ExpertBiasShape& shape, float* d_weights, const void* dy,
                                  const int32_t* ids, const float* bias);

}  // namespace strata::cpu
