// What attention reads besides queries, keys and values: the bias of distances, and where documents end.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct RelativeBiasShape {
  int64_t buckets = 0, heads = 0;
  int64_t max_distance = 0;
  bool bidirectional = false;
  int64_t first = 0, last = 0;  // distances, key less query
};

// The bucket of a distance (Raffel et al. 2020). Keys behind and ahead of a query have half of the buckets
// each, or all are for those behind and the others share bucket 0. Of a direction's buckets the first half
// hold one distance each; the others part what lies before max_distance evenly on a logarithmic scale, and
// the last holds all beyond. The logarithm is that of fp32, as in the published models.
int64_t relative_bucket(const RelativeBiasShape& shape, int64_t distance);

// bias[heads, last - first + 1] = table[bucket, head]; table [buckets, heads].
void relative_bias(const RelativeBiasShape& shape, float* bias, const float* table);
// d_table = (or +=) sums of dbias by bucket, distances in rising order.
void relative_bias_backward(const RelativeBiasShape& shape, float* d_table, const float* dbias,
                            bool accumulate);

// ends[sequences, q_len]: the end of the range of keys j of a row's sequence with k_begin[j] = q_begin[i], 0
// where there is none. k_begin [sequences, k_len] does not fall within a sequence.
void document_ends(int64_t sequences, int64_t q_len, int64_t k_len, int32_t* ends, const int32_t* q_begin,
                   const int32_t* k_begin);

}  // namespace strata::cpu
