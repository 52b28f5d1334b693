// Queries, keys and values of latent attention in the layout that attention reads: kernels of
// ops::latent_heads, ops::latent_keys and their gradients.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// Per head, queries and keys have plain + rotary elements, values have `value` elements.
struct LatentHeads {
  int64_t rows = 0, heads = 0;
  int64_t plain = 0, rotary = 0, value = 0;
  DType dtype = DType::kF32;
};

// qkv[rows, q | k | v]: each key consists of its head's columns of kv[rows, plain keys | values] and
// `rotated`, which all heads share.
void latent_heads_forward(const LatentHeads& shape, void* qkv, const void* q, const void* kv,
                          const void* rotated);
// drotated is the sum over heads in fp32, rounded once.
void latent_heads_backward(const LatentHeads& shape, void* dq, void* dkv, void* drotated, const void* dqkv);
// The same without queries: keys_values[rows, k | v].
void latent_keys_forward(const LatentHeads& shape, void* keys_values, const void* kv, const void* rotated);
void latent_keys_backward(const LatentHeads& shape, void* dkv, void* drotated, const void* dkeys_values);

}  // namespace strata::cpu
