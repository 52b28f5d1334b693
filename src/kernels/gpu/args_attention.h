// Parameters of the GPU kernels for forms of attention that attention_forward.cu and attention_f32.cu do not take, and for
// what surrounds attention (args.h).
#pragma once

#include "kernels/gpu/args.h"

namespace strata::gpu {

// Attention with a bias by distance, with rows of any width, or with heads above 256. The columns of a head's result are
// divided among `slices` blocks.
struct PlainAttentionArgs {
  AttentionArgs attention;
  const float* bias;        // [heads, bias_width], added to the scaled score; null: none
  const int32_t* position;  // [batch]: the place of a sequence's first row among the keys; null: 0
  // Column of the bias for a key at its row's own place.
  int32_t bias_zero, bias_width;
  int32_t slices;
  // The bias's gradient: part p has the sums of every bias_parts-th tile of rows.
  float* dbias;  // [bias_parts, heads, bias_width]
  int32_t bias_parts;
};

// Buckets [0, count) of distances in one direction (tensor/relative_bucket.h): bucket b holds the lengths from starts[b] to
// below starts[b + 1].
constexpr int32_t kMostBucketsAtOnce = 256;
enum class DistancesOf : int32_t { kAll, kBefore, kAfter };  // kAll: those after a row have length 0
struct RelativeBiasArgs {
  float* bias;                                     // [heads, width]
  const float* table;                              // the row of the first bucket; rows have `heads` numbers
  const float* dbias;                              // [heads, width]
  float* dtable;                                   // the row of the first bucket; only backward
  int32_t heads, width, first, count, accumulate;  // first: the distance of column 0
  DistancesOf of;
  int32_t starts[kMostBucketsAtOnce + 1];
};

// ends[rows]: as ops::DocumentEnds has them.
struct DocumentEndsArgs {
  int32_t* ends;
  const int32_t* q_begin;
  const int32_t* k_begin;
  int32_t rows, length, kv_length;
};

// Rows [q | plain keys and rotated parts by head | values] of latent attention, from q, kv = [plain keys | values] and
// rotated; backward the other way, where `rotated` gets the sum over heads.
struct LatentHeadsArgs {
  void* qkv;
  void* q;
  void* kv;
  void* rotated;
  int64_t rows;
  int32_t heads, plain, rotary, value;
};
// c[row][head][n] = a[row][head][k] · b[head], b[k][n] or, if transposed, b[n][k], rounded to a's type first.
struct HeadProductsArgs {
  void* c;
  const void* a;
  const float* b;
  int64_t a_stride, c_stride, b_stride;  // of rows of a and c; of heads of b
  int32_t a_head, c_head;                // from one head to the next
  int32_t rows, n, k, transposed;
};

}  // namespace strata::gpu
