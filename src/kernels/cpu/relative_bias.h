// Inputs of attention besides queries, keys and values: the relative position bias, and the ends of
// documents.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct RelativeBiasShape {
  int64_t buckets = 0, heads = 0;
  int64_t max_distance = 0;
  bool bidirectional = false;
  int64_t first = 0, last = 0;  // distances: key position - query position
};

// strata::relative_bucket of the shape (tensor/relative_bucket.h).
int64_t relative_bucket(const RelativeBiasShape& shape, int64_t distance);

// bias[heads, last - first + 1] = table[bucket, head]; table is [buckets, heads].
void relative_bias(const RelativeBiasShape& shape, float* bias, const float* table);
// d_table = (or +=) sums of dbias by bucket, in ascending order of distance.
void relative_bias_backward(const RelativeBiasShape& shape, float* d_table, const float* dbias,
                            bool accumulate);

// ends[sequences, q_len]: the end of the range of keys j of the same sequence with k_begin[j] = q_begin[i],
// or 0 if there are none. k_begin[sequences, k_len] never decreases within a sequence.
void document_ends(int64_t sequences, int64_t q_len, int64_t k_len, int32_t* ends, const int32_t* q_begin,
                   const int32_t* k_begin);

}  // namespace strata::cpu
