// Attention of each row to a few keys that are listed for it (ops/sparse_attention):
//
//   out[i] = Σ_j p[j] v[chosen[i, j]],   p = softmax_j(scale · q[i]·k[chosen[i, j]]),   lse[i] = log Σ_j exp(…)
//
// per sequence and head; query head h reads key–value head h / (heads / kv_heads). Keys are packed to fp32 tile by
// tile, and each row visits those of its keys that are in the tile. Sums are fp32, in an order that depends only on
// the shape, the processor and the lists: the bits are the same for every run and number of threads. No memory grows
// with rows times keys.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Strides are in elements, as in AttentionShape (attention.h).
struct SparseAttentionShape {
  int64_t sequences = 0;
  int64_t q_len = 0, kv_len = 0;  // rows and keys of a sequence
  int64_t count = 0;              // entries of a row's list
  int64_t heads = 1, kv_heads = 1;
  int64_t head_dim = 0, value_dim = 0;
  float scale = 1.0f;
  DType dtype = DType::kF32;  // kF32, kBF16 or kF16: of q, k, v, out and their gradients
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;  // between rows
  int64_t kv_batch_stride = 0;                       // between sequences in k, v, dk and dv
};

// Bytes of scratch for a number of threads; more threads than that do not take part in a call.
struct SparseAttentionPlan {
  SparseAttentionShape shape;
  int64_t threads = 1;
  int64_t rows = 0;  // of a forward task
  int64_t forward_bytes = 0, backward_bytes = 0;
};
SparseAttentionPlan plan_sparse_attention(const SparseAttentionShape& shape,
                                          const hardware::DeviceSpec& device);

struct SparseAttentionInputs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  // int32 [sequences · q_len, count]: keys of a row's sequence, ascending, then -1.
  const int32_t* chosen = nullptr;
  const int32_t* kv_slot = nullptr;  // [sequences]: the one of k and v to read; null: the same. Forward only
};

// out: [sequences · q_len, heads · value_dim]. lse [sequences, heads, q_len] may be null. mass [sequences · q_len,
// count] may be null: p summed over heads, 0 for entries of -1. A row without keys has out 0 and lse -inf.
// Scratch is aligned to 64 bytes and keeps nothing between calls.
void sparse_attention_forward(const SparseAttentionPlan& plan, void* out, float* lse, float* mass,
                              const SparseAttentionInputs& in, void* scratch);

// Overwritten; keys that no row chose have gradient 0.
struct SparseAttentionGradients {
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
void sparse_attention_backward(const SparseAttentionPlan& plan, const SparseAttentionGradients& to,
                               const void* dout, const void* out, const float* lse,
                               const SparseAttentionInputs& in, void* scratch);

}  // namespace strata::cpu
