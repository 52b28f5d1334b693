// Biases of experts (ops/expert_bias). Rows have the given dtype (f32 or bf16); biases and sums are fp32. The
// bits of sums do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct ExpertBiasShape {
  int64_t tokens = 0;
  int64_t slots = 0;  // token-expert pairs: with offsets the capacity for them, else k times the tokens
  int64_t experts = 1, columns = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;  // for the gradient of biases
};

// The expert of each token-expert pair (-1: none). A token's pairs are [offsets[t], offsets[t + 1]); if
// offsets is null, all tokens have the same number.
struct BiasSlots {
  const int32_t* ids = nullptr;
  const int32_t* offsets = nullptr;
};

// weights null: x and y have one row per pair, and each row gets its expert's bias. Otherwise weights has one
// value per pair, x and y have one row per token, and each row gets the weighted biases of its pairs. y may
// alias x.
void add_expert_bias(const ExpertBiasShape& shape, void* y, const void* x, BiasSlots slots,
                     const float* weights, const float* bias);
// One sum over an expert's pairs in their order, whether one call has all of them or several calls
// accumulate.
void expert_bias_gradient(const ExpertBiasShape& shape, float* d_bias, const void* dy, BiasSlots slots,
                          const float* weights);
// d_weights[pair] = dy[its token] · bias of its expert.
void expert_bias_weights_gradient(const ExpertBiasShape& shape, float* d_weights, const void* dy,
                                  BiasSlots slots, const float* bias);

}  // namespace strata::cpu
