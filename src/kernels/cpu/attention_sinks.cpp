#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/by_dtype.h"

namespace strata::cpu {
namespace {

template <typename T>
double of_head(const SinkGradShape& s, int64_t head, const void* dout, const void* out, const float* lse,
               float sink) {
  double sum = 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t at = (row * s.heads + head) * s.head_dim;
    const T* const x = static_cast<const T*>(out) + at;
    const T* const dx = static_cast<const T*>(dout) + at;
    double product = 0;
    for (int64_t c = 0; c < s.head_dim; ++c)
      product += static_cast<double>(static_cast<float>(x[c])) * static_cast<float>(dx[c]);
    const float row_lse = lse[(row / s.length * s.heads + head) * s.length + row % s.length];
    sum -= std::exp(static_cast<double>(sink) - row_lse) * product;
  }
  return sum;
}

}  // namespace

void sink_gradient(const SinkGradShape& s, float* d_sinks, const void* dout, const void* out,
                   const float* lse, const float* sinks) {
  const auto sum_of = by_dtype(s.dtype, of_head<float>, of_head<BF16>, of_head<F16>);
  parallel_for(s.heads, [&](int64_t head) {
    const double sum = sum_of(s, head, dout, out, lse, sinks[head]);
    d_sinks[head] = static_cast<float>((s.accumulate ? d_sinks[head] : 0.0f) + sum);
  });
}

}  // namespace strata::cpu
