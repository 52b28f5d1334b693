#include "kernels/cpu/relative_bias.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/relative_bucket.h"

namespace strata::cpu {

int64_t relative_bucket(const RelativeBiasShape& shape, int64_t distance) {
  return strata::relative_bucket({shape.buckets, shape.max_distance, shape.bidirectional}, distance);
}

void relative_bias(const RelativeBiasShape& shape, float* bias, const float* table) {
  const int64_t width = shape.last - shape.first + 1;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t bucket = relative_bucket(shape, shape.first + i);
    for (int64_t head = 0; head < shape.heads; ++head)
      bias[head * width + i] = table[bucket * shape.heads + head];
  }
}

void relative_bias_backward(const RelativeBiasShape& shape, float* d_table, const float* dbias,
                            bool accumulate) {
  const int64_t width = shape.last - shape.first + 1;
  if (!accumulate) std::fill_n(d_table, shape.buckets * shape.heads, 0.0f);
  for (int64_t i = 0; i < width; ++i) {
    const int64_t bucket = relative_bucket(shape, shape.first + i);
    for (int64_t head = 0; head < shape.heads; ++head)
      d_table[bucket * shape.heads + head] += dbias[head * width + i];
  }
}

void document_ends(int64_t sequences, int64_t q_len, int64_t k_len, int32_t* ends, const int32_t* q_begin,
                   const int32_t* k_begin) {
  parallel_for(sequences, [&](int64_t s) {
    const int32_t* const first = k_begin + s * k_len;
    for (int64_t i = s * q_len; i < (s + 1) * q_len; ++i) {
      const int32_t* const end = std::upper_bound(first, first + k_len, q_begin[i]);
      const bool found = end != first && end[-1] == q_begin[i];
      ends[i] = found ? static_cast<int32_t>(end - first) : 0;
    }
  });
}

}  // namespace strata::cpu
