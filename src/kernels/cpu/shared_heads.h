// Key and value heads shared by several ranks: kernels of ops::share_heads and its gradient.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// Over all ranks, each of the kv_heads key heads, and each of the kv_heads value heads, has `copies` copies.
// A rank has `own` of these, from copy `first` on.
struct SharedHeads {
  int64_t rows = 0;
  int64_t q_width = 0;  // elements of a row's queries
  int64_t head_dim = 0, kv_heads = 0;
  int64_t copies = 1, own = 1;
  DType dtype = DType::kF32;
};

// qkv[rows, q | own k | own v] from q[rows, q_width] and kv[rows, k | v].
void share_heads_forward(const SharedHeads& shape, void* qkv, const void* q, const void* kv, int64_t first);
// dq, and dkv: the sum of this rank's copies of each head, 0 for a head without a copy here.
void share_heads_backward(const SharedHeads& shape, void* dq, void* dkv, const void* dqkv, int64_t first);

}  // namespace strata::cpu
