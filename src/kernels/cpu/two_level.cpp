#include "kernels/cpu/two_level.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace strata::cpu {
namespace {

constexpr int64_t kTokens = 64;  // per task

// NaN if any of them is NaN.
float log_sum_exp(const float* x, int64_t count) {
  const float greatest = *std::max_element(x, x + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - greatest);
  return greatest + std::log(sum);
}

}  // namespace

void two_level_logits(const TwoLevelShape& shape, float* y, const float* groups, const float* logits) {
  const int64_t size = shape.experts / shape.groups;
  parallel_ranges(shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* const of_groups = groups + token * shape.groups;
      const float all = log_sum_exp(of_groups, shape.groups);
      for (int64_t g = 0; g < shape.groups; ++g) {
        const float* const own = logits + token * shape.experts + g * size;
        const float shift = (of_groups[g] - all) - log_sum_exp(own, size);
        for (int64_t e = 0; e < size; ++e) y[token * shape.experts + g * size + e] = own[e] + shift;
      }
    }
  });
}

void two_level_logits_backward(const TwoLevelShape& shape, float* d_groups, float* d_logits, const float* dy,
                               const float* groups, const float* logits) {
  const int64_t size = shape.experts / shape.groups;
  parallel_ranges(shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* const of_groups = groups + token * shape.groups;
      float* const d_of_groups = d_groups + token * shape.groups;
      float sum = 0;
      for (int64_t g = 0; g < shape.groups; ++g) {
        const int64_t first = token * shape.experts + g * size;
        float of_group = 0;
        for (int64_t e = first; e < first + size; ++e) of_group += dy[e];
        const float z = log_sum_exp(logits + first, size);
        for (int64_t e = first; e < first + size; ++e)
          d_logits[e] = dy[e] - std::exp(logits[e] - z) * of_group;
        d_of_groups[g] = of_group;
        sum += of_group;
      }
      const float all = log_sum_exp(of_groups, shape.groups);
      for (int64_t g = 0; g < shape.groups; ++g) d_of_groups[g] -= std::exp(of_groups[g] - all) * sum;
    }
  });
}

}  // namespace strata::cpu
