// Exact attention, tile by tile, without materializing the scores:
//
//   out[i] = Σ_j P[i,j] v[j],   P[i,:] = softmax_j(s[i,:]),   lse[i] = log Σ_j exp(s[i,j]),
//   s[i,j] = scale · q[i]·k[j] + bias[bias_zero + j - position(i)]
//
// q and k have head_dim elements, v and out value_dim; per sequence and head. Query head h reads key–value
// head h / (heads / kv_heads). Row i has position q_start + i among the keys and sees the keys j with
//
//   max(kv_begin[i], position - window + 1) ≤ j < kv_end[i],   and j ≤ position if causal.
//
// A head may have a sink: a score that is added to the sum of exponentials, and so to lse, but has no value
// (Xiao et al. 2023; gpt-oss). Backward does not need it, because out and lse include it. A row that sees no
// key has out = 0, lse = -inf (or the sink) and no gradient. Tiles that no row sees are skipped, so packed
// short documents cost no more than separate ones. All sums are fp32, in an order that depends only on the
// shape and the processor: results are bit-identical for every run and number of threads. Online softmax:
// Milakov and Gimelshein (2018); tiling and backward pass: Dao et al. (2022).
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Maximum head_dim and value_dim.
inline constexpr int64_t kMostAttentionDim = 1024;

// Tensors are [batch, tokens, heads, head_dim], with dense heads and head_dim and a stride between tokens, so
// q, k and v may be slices of one fused buffer. Strides are in elements.
struct AttentionShape {
  int64_t batch = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;  // with a key–value cache: the maximum number of keys that a row may see
  int64_t heads = 1;
  int64_t kv_heads = 1;   // divides heads
  int64_t head_dim = 0;   // of q and k
  int64_t value_dim = 0;  // of v and out; 0: head_dim
  float scale = 1.0f;
  DType dtype = DType::kF32;    // kF32, kBF16 or kF16: of q, k, v, out and their gradients
  int64_t q_stride = 0;         // of q and dq; sequences are contiguous, as in out
  int64_t k_stride = 0;         // of k and dk
  int64_t v_stride = 0;         // of v and dv
  int64_t out_stride = 0;       // of out and dout
  int64_t kv_batch_stride = 0;  // between sequences in k, v, dk and dv
  // All key–value heads share one head in memory, which the task of each head reads: more tasks for a single
  // long cache. Forward only.
  bool one_kv_head = false;
  // Number of equal chunks of a sequence's rows (q_pieces) and of its keys (kv_pieces). Positions are
  // contiguous within a chunk; chunks are in ascending order, with gaps between them.
  int64_t q_pieces = 1;
  int64_t kv_pieces = 1;  // above 1: without bias and bias gradient
  bool causal = true;
  int64_t window = 0;      // keys that a row sees, including itself; 0: no limit. Needs causal
  bool chunked = false;    // the window begins at the last multiple of its size that is at or before the row
  float softcap = 0;       // above 0: a score s = scale · q·k becomes softcap · tanh(s / softcap)
  int64_t bias_width = 0;  // entries of a head's bias, one per distance; 0: no bias. Not with softcap
  int64_t bias_zero = 0;   // entry of distance 0, for the key at its query's own position
  // Forward also reports the greatest score of each head (GreatestScores). Such a plan never decodes.
  bool finds_greatest = false;
};

// Arithmetic of the matmuls. bf16 operands are multiplied in bf16, with scores' weights and gradients rounded
// to bf16, if the processor has faster instructions for it: VDPBF16PS (kPairs) or AMX tiles (kTiles). A plan
// for such a processor runs anywhere, on a model of the instructions. Not used if `decode`.
enum class AttentionProducts : uint8_t { kF32, kPairs, kTiles };

// Requirements and cost of a call, a function of its shape.
struct AttentionPlan {
  AttentionShape shape;
  int64_t forward_scratch_bytes = 0;
  int64_t backward_scratch_bytes = 0;
  double forward_flops = 0.0;  // of the matmuls; a causal square counts half
  double backward_flops = 0.0;
  double forward_bytes = 0.0;  // each operand once
  double backward_bytes = 0.0;
  int64_t threads = 1;  // maximum number that work on a call
  AttentionProducts products = AttentionProducts::kF32;
  int64_t query_chunk = 0;  // query rows per forward task and head
  bool decode = false;      // a few query rows against a long cache: split over the keys, bandwidth-bound
};

// Throws ConfigError if the shape violates the limits above.
AttentionPlan plan_attention(const AttentionShape& shape, const hardware::DeviceSpec& device);

// Inputs of a call. Only q, k and v are required.
struct AttentionInputs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  // int32 [batch, q_len]: a row sees keys in [kv_begin, kv_end). Null: from 0, to kv_len. Neither may
  // decrease over the rows of a sequence that see a key. With causal, a row ends at its own position: no
  // kv_end.
  const int32_t* kv_begin = nullptr;
  const int32_t* kv_end = nullptr;
  // int32 [batch, q_pieces]: position of a chunk's first query among the keys. Null, for one chunk only:
  // kv_len - q_len.
  const int32_t* q_start = nullptr;
  // int32 [batch, kv_pieces]: position of a chunk's first key, to which the other positions here refer. Null,
  // for one chunk only: 0.
  const int32_t* kv_start = nullptr;
  const int32_t* kv_slot = nullptr;  // int32 [batch]: sequence of k and v to read; null: the same index
  const float* bias = nullptr;       // [heads, bias_width], if the shape has a bias
  const float* sinks = nullptr;      // [heads]; null: no sinks. Forward only
};

// The greatest scale · q·k of each head, [heads], over all rows and the keys that they see: before bias, softcap and
// sink; -inf if no row sees a key. A NaN is not found. With `accumulate` the stored value stays if it is greater.
struct GreatestScores {
  float* of_heads = nullptr;
  bool accumulate = false;
};

// lse is float [batch, heads, q_len]. `greatest`: if the shape finds these. scratch: at least forward_scratch_bytes, aligned to 64 bytes,
// uninitialised; it keeps no state between calls.
void attention_forward(const AttentionPlan& plan, void* out, float* lse, const AttentionInputs& in,
                       void* scratch, const GreatestScores& greatest = {});

// Merges the results of two attention calls over disjoint keys: out is their mean with weights exp(lse).
// out [rows, heads, head_dim], lse [rows / length, heads, length]; both may alias the first result.
struct AttentionMergeShape {
  int64_t rows = 0, length = 0, heads = 0, head_dim = 0;
  DType dtype = DType::kF32;  // of out: kF32, kBF16 or kF16
};
void merge_attention(const AttentionMergeShape& shape, void* out, float* lse, const void* first,
                     const float* first_lse, const void* second, const float* second_lse);

// d_sinks[heads] of a forward call with sinks: minus the weight of the sink times dout · out, summed over
// rows in fp64; added to the stored values if `accumulate`.
struct SinkGradShape {
  int64_t rows = 0, length = 0, heads = 0, head_dim = 0;  // lse is [rows / length, heads, length]
  DType dtype = DType::kF32;                              // of out and dout [rows, heads, head_dim]
  bool accumulate = false;
};
void sink_gradient(const SinkGradShape& shape, float* d_sinks, const void* dout, const void* out,
                   const float* lse, const float* sinks);

// Overwritten. dbias [heads, bias_width], if the shape has a bias, is summed over rows and sequences.
struct AttentionGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* dbias = nullptr;
};

// Each sequence must have its own keys (no kv_slot).
void attention_backward(const AttentionPlan& plan, const AttentionGradients& to, const void* dout,
                        const void* out, const float* lse, const AttentionInputs& in, void* scratch);

}  // namespace strata::cpu
