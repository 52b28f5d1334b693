// The loss of an indexer (indexer.h): coefficient · Σ_t KL(p[t] ‖ softmax(I[t])) over the rows t with a target.
// p[t] is the main attention's weight of each key, summed over heads and divided by the sum over keys:
//
//   chosen keys   p[t, j] ∝ mass[t, j], over the listed keys
//   all keys      p[t, s] ∝ Σ_n exp(main_scale · main_q[t, n] · main_k[s, n] - main_lse[t, n]), over those a row sees
//
// Sums are fp32 within a row, fp64 over rows, in an order that depends only on the shape and the processor: the bits
// are the same for every run and number of threads. Scratch holds the scores of a few rows against all keys, and, for
// gradients, a fixed number of sums of the keys' gradients.
#pragma once

#include "hardware/device_spec.h"
#include "kernels/cpu/indexer.h"

namespace strata::cpu {

struct IndexerLossShape {
  IndexerShape rows;  // rows.count: of the lists
  double coefficient = 1;
  // Of the main attention, for the loss over all keys: strides between rows, in elements.
  int64_t main_heads = 0, main_kv_heads = 0, main_dim = 0;
  int64_t main_k_stride = 0, main_kv_batch_stride = 0;
  float main_scale = 1.0f;
  bool all_keys() const { return main_heads > 0; }
};

struct IndexerLossPlan {
  IndexerLossShape shape;
  int64_t threads = 1;
  int64_t forward_bytes = 0, backward_bytes = 0;
};
IndexerLossPlan plan_indexer_loss(const IndexerLossShape& shape, const hardware::DeviceSpec& device);

struct IndexerLossInputs {
  IndexerInputs rows;                // no kv_slot
  const int32_t* targets = nullptr;  // [rows]; negative: none
  const int32_t* chosen = nullptr;   // [rows, count], ascending, then -1
  const float* mass = nullptr;       // [rows, count]
  const void* main_q = nullptr;      // [rows, main_heads · main_dim]
  const void* main_k = nullptr;
  const float* main_lse = nullptr;  // [sequences, main_heads, q_len]
};

// Scratch is aligned to 64 bytes and keeps nothing between calls. *sum is added to if `accumulate`.
void indexer_loss_forward(const IndexerLossPlan& plan, double* sum, const IndexerLossInputs& in,
                          bool accumulate, void* scratch);

// Of seed · loss; overwritten.
struct IndexerLossGradients {
  void *dq = nullptr, *dk = nullptr;
  float* dweights = nullptr;
};
void indexer_loss_backward(const IndexerLossPlan& plan, const IndexerLossGradients& to, float seed,
                           const IndexerLossInputs& in, void* scratch);

}  // namespace strata::cpu
