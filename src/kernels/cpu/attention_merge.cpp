#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/by_dtype.h"

namespace strata::cpu {
namespace {

template <typename T>
void add_parts(T* to, const T* first, const T* second, float a, float b, int64_t n) {
  for (int64_t c = 0; c < n; ++c)
    to[c] = static_cast<T>(a * static_cast<float>(first[c]) + b * static_cast<float>(second[c]));
}

template <typename T>
void merge_row(const AttentionMergeShape& s, int64_t row, T* out, float* lse, const T* first,
               const float* first_lse, const T* second, const float* second_lse) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  for (int64_t head = 0; head < s.heads; ++head) {
    const int64_t at = (row / s.length * s.heads + head) * s.length + row % s.length;
    const int64_t from = (row * s.heads + head) * s.head_dim;
    const float most = std::max(first_lse[at], second_lse[at]);
    const float a = most == kNothing ? 0.0f : std::exp(first_lse[at] - most);
    const float b = most == kNothing ? 0.0f : std::exp(second_lse[at] - most);
    const float sum = most == kNothing ? 1.0f : a + b;
    add_parts(out + from, first + from, second + from, a / sum, b / sum, s.head_dim);
    lse[at] = most + std::log(sum);
  }
}

template <typename T>
void merge(const AttentionMergeShape& s, void* out, float* lse, const void* first, const float* first_lse,
           const void* second, const float* second_lse) {
  parallel_ranges(s.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      merge_row(s, row, static_cast<T*>(out), lse, static_cast<const T*>(first), first_lse,
                static_cast<const T*>(second), second_lse);
  });
}

}  // namespace

void merge_attention(const AttentionMergeShape& shape, void* out, float* lse, const void* first,
                     const float* first_lse, const void* second, const float* second_lse) {
  by_dtype(shape.dtype, merge<float>, merge<BF16>, merge<F16>)(shape, out, lse, first, first_lse, second,
                                                               second_lse);
}

}  // namespace strata::cpu
