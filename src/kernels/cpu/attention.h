// Exact attention, tile by tile, without a matrix of scores:
//
//   out[i] = Σ_j P[i,j] v[j],   P[i,:] = softmax_j(s[i,:]),   lse[i] = log Σ_j exp(s[i,j]),
//   s[i,j] = scale · q[i]·k[j] + bias[bias_zero + j - position(i)]
//
// where q and k have head_dim elements, v and out value_dim; per sequence and head; query head h reads
// key–value head h / (heads / kv_heads). Row i has the position q_start + i among the keys and sees the keys
// j with
//
//   max(kv_begin[i], position - window + 1) ≤ j < kv_end[i],   and j ≤ position where causal.
//
// A head may have a sink: a score that counts in the sum of exponentials, and so in lse, and has no value
// (Xiao et al. 2023; gpt-oss). Backward needs to know nothing of it, since out and lse do. A row that sees no
// key gives out = 0, lse = -inf (the sink, where there is one) and no gradient. Tiles that no row sees are
// not computed, so short documents cost what they cost. All sums are fp32, in an order that depends on the
// shape and the processor alone: the same bits for every run and number of threads. Online softmax: Milakov
// and Gimelshein (2018); tiling and backward pass: Dao et al. (2022).
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// The most elements of a head, of queries and keys as of values.
inline constexpr int64_t kMostAttentionDim = 1024;

// Tensors are [batch, tokens, heads, head_dim] with head_dim and heads dense and a stride between tokens, so
// that q, k and v may be slices of one fused buffer. Strides count elements.
struct AttentionShape {
  int64_t batch = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;  // with a key–value cache: the most keys that a row may see
  int64_t heads = 1;
  int64_t kv_heads = 1;   // divides heads
  int64_t head_dim = 0;   // of q and k
  int64_t value_dim = 0;  // of v and out; 0: as head_dim
  float scale = 1.0f;
  DType dtype = DType::kF32;    // kF32 or kBF16: of q, k, v, out and their gradients
  int64_t q_stride = 0;         // of q and dq; sequences follow each other without a gap, as in out
  int64_t k_stride = 0;         // of k and dk
  int64_t v_stride = 0;         // of v and dv
  int64_t out_stride = 0;       // of out and dout
  int64_t kv_batch_stride = 0;  // between sequences in k, v, dk and dv
  // All key–value heads are one in memory, read by the task of each: more tasks for a single long cache.
  // Forward only.
  bool one_kv_head = false;
  // Equal pieces that the rows of a sequence, and its keys, consist of: each lies in one stretch of
  // positions, the pieces in rising order with gaps between them.
  int64_t q_pieces = 1;
  int64_t kv_pieces = 1;  // more than one: with neither bias nor gradient of one
  bool causal = true;
  int64_t window = 0;      // keys that a row sees, itself included; 0: no limit. Needs causal
  bool chunked = false;    // the window begins at the last multiple of its size up to the row's position
  float softcap = 0;       // above 0: a score s = scale · q·k counts as softcap · tanh(s / softcap)
  int64_t bias_width = 0;  // distances that the bias of a head has an entry for; 0: no bias. Not with softcap
  int64_t bias_zero = 0;   // the entry of distance 0, of a key at its query's own position
};

// How operands are multiplied. bf16 ones as they are, with weights and gradients of scores rounded to bf16,
// where the processor has instructions for it that are faster: pairs by VDPBF16PS, or AMX tiles. A plan for a
// processor with them runs anywhere, on a model of the instructions. Not where `decode`.
enum class AttentionProducts : uint8_t { kF32, kPairs, kTiles };

// What a call needs and costs, from its shape alone.
struct AttentionPlan {
  AttentionShape shape;
  int64_t forward_scratch_bytes = 0;
  int64_t backward_scratch_bytes = 0;
  double forward_flops = 0.0;  // of the matrix products; the causal square counts by half
  double backward_flops = 0.0;
  double forward_bytes = 0.0;  // each operand once
  double backward_bytes = 0.0;
  int64_t threads = 1;  // at most so many work on a call
  AttentionProducts products = AttentionProducts::kF32;
  int64_t query_chunk = 0;  // query rows of a forward task, per head
  bool decode = false;      // few rows against a long cache: split over the keys, bound by bandwidth
};

// Throws ConfigError on a shape outside the limits above.
AttentionPlan plan_attention(const AttentionShape& shape, const hardware::DeviceSpec& device);

// What a call reads. All but q, k and v may be null.
struct AttentionInputs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  // int32 [batch, q_len]: the keys [kv_begin, kv_end) of a row. Null: from 0, to kv_len. Among the rows of a
  // sequence that see a key neither falls. A causal row ends at itself: no kv_end.
  const int32_t* kv_begin = nullptr;
  const int32_t* kv_end = nullptr;
  // int32 [batch, q_pieces]: position of a piece's first query among the keys; null, where there is one
  // piece: kv_len - q_len.
  const int32_t* q_start = nullptr;
  // int32 [batch, kv_pieces]: position of a piece's first key, which the other positions here count with;
  // null, where there is one piece: 0.
  const int32_t* kv_start = nullptr;
  const int32_t* kv_slot = nullptr;  // int32 [batch]: which sequence of k and v is read; null: the own one
  const float* bias = nullptr;       // [heads, bias_width], where the shape has one
  const float* sinks = nullptr;      // [heads]; null: there are none. Of forward calls
};

// lse is float [batch, heads, q_len]. scratch: at least forward_scratch_bytes, aligned to 64 bytes; it may
// hold anything, and no state stays in it.
void attention_forward(const AttentionPlan& plan, void* out, float* lse, const AttentionInputs& in,
                       void* scratch);

// Attention to the keys of two calls, which have none in common, from what each gave: out is the mean of both
// by the weights exp(lse). out [rows, heads, head_dim], lse [rows / length, heads, length]; both may be
// written over the first.
struct AttentionMergeShape {
  int64_t rows = 0, length = 0, heads = 0, head_dim = 0;
  DType dtype = DType::kF32;  // of out: kF32 or kBF16
};
void merge_attention(const AttentionMergeShape& shape, void* out, float* lse, const void* first,
                     const float* first_lse, const void* second, const float* second_lse);

// d_sinks[heads] of what a forward call with sinks gave: minus the weight of the sink times dout · out,
// summed over rows in fp64; added to what is there where `accumulate`.
struct SinkGradShape {
  int64_t rows = 0, length = 0, heads = 0, head_dim = 0;  // lse is [rows / length, heads, length]
  DType dtype = DType::kF32;                              // of out and dout [rows, heads, head_dim]
  bool accumulate = false;
};
void sink_gradient(const SinkGradShape& shape, float* d_sinks, const void* dout, const void* out,
                   const float* lse, const float* sinks);

// Overwritten. dbias [heads, bias_width], where the shape has a bias, is summed over rows and sequences.
struct AttentionGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* dbias = nullptr;
};

// Each sequence has its own keys (no kv_slot).
void attention_backward(const AttentionPlan& plan, const AttentionGradients& to, const void* dout,
                        const void* out, const float* lse, const AttentionInputs& in, void* scratch);

}  // namespace strata::cpu
