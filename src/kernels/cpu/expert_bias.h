// Biases of experts (ops/expert_bias). Rows have the given dtype (f32 or bf16), biases and sums are fp32;
// sums have the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct ExpertBiasShape {
  int64_t tokens = 0;
  int64_t slots = 0;  // with offsets room for them, else k times the tokens
  int64_t experts = 1, columns = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;  // of the gradient of biases
};

// Experts of slots, -1: none, and which slots are a token's; offsets null: equally many of each.
struct BiasSlots {
  const int32_t* ids = nullptr;
  const int32_t* offsets = nullptr;
};

// weights[slots] null: x and y have a row a slot, to which its expert's bias is added; else a row a token, to
// which the weighted biases of its slots are. y may alias x.
void add_expert_bias(const ExpertBiasShape& shape, void* y, const void* x, BiasSlots slots,
                     const float* weights, const float* bias);
// One sum over an expert's slots in their order, whether one call has them all or several add to it.
void expert_bias_gradient(const ExpertBiasShape& shape, float* d_bias, const void* dy, BiasSlots slots,
                          const float* weights);
// d_weights[slot] = dy[its token] · bias of its expert.
void expert_bias_weights_gradient(const ExpertBiasShape& shape, float* d_weights, const void* dy,
                                  BiasSlots slots, const float* bias);

}  // namespace strata::cpu
