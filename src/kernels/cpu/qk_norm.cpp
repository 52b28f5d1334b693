#include "kernels/cpu/qk_norm.h"

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qk_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cstring>

#include "kernels/cpu/rms_rows-inl.h"
#include "kernels/cpu/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// Calls body(group, first element in the row, width, whether it is in q) for all groups of a row.
template <typename Body>
HWY_INLINE void for_groups(const QkNormShape& s, const Body& body) {
  for (int64_t g = 0; g < s.q_groups; ++g) body(g, g * s.q_width, s.q_width, true);
  for (int64_t g = 0; g < s.k_groups; ++g)
    body(s.q_groups + g, s.q_groups * s.q_width + g * s.k_width, s.k_width, false);
}

// Copies v, which no kernel changes.
template <typename T>
HWY_INLINE void copy_rest(const QkNormShape& s, T* to, const T* from) {
  if (to == from) return;
  const int64_t begin = s.q_groups * s.q_width + s.k_groups * s.k_width;
  std::memcpy(static_cast<void*>(to + begin), from + begin,
              static_cast<size_t>(s.row_stride - begin) * sizeof(T));
}

template <typename T>
void forward_rows(const QkNormShape& s, void* y, float* rstd, const void* x, const float* q_weight,
                  const float* k_weight, const float* means, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * s.row_stride;
    T* const to = static_cast<T*>(y) + row * s.row_stride;
    for_groups(s, [&](int64_t g, int64_t at, int64_t width, bool is_q) HWY_ATTR {
      float* const found = rstd + row * s.groups() + g;
      const float* const weight = is_q ? q_weight : k_weight;
      if (means == nullptr) {
        forward_row<T>(width, s.eps, s.weight_offset, to + at, nullptr, found, from + at, nullptr, weight);
      } else {
        *found = 1.0f / std::sqrt(means[2 * row + (is_q ? 0 : 1)] + s.eps);
        scale_row<T>(width, s.weight_offset, to + at, from + at, *found, weight);
      }
    });
    copy_rest(s, to, from);
  }
}

template <typename T>
void backward_rows(const QkNormShape& s, void* dx, const void* dy, const void* x, const float* rstd,
                   const float* q_weight, const float* k_weight, const float* means, int64_t begin,
                   int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * s.row_stride;
    T* const to = static_cast<T*>(dx) + first;
    const T* const grad = static_cast<const T*>(dy) + first;
    const T* const from = static_cast<const T*>(x) + first;
    for_groups(s, [&](int64_t g, int64_t at, int64_t width, bool is_q) HWY_ATTR {
      const float* const weight = is_q ? q_weight : k_weight;
      const float scale = rstd[row * s.groups() + g];
      if (means == nullptr) {
        backward_row<T>(width, s.weight_offset, to + at, grad + at, from + at, scale, weight, nullptr);
      } else {
        backward_row_by<T>(width, s.weight_offset, to + at, grad + at, from + at, scale,
                           means[2 * row + (is_q ? 0 : 1)] * scale, weight, nullptr);
      }
    });
    copy_rest(s, to, grad);
  }
}

template <typename T>
void means_of_rows(const QkNormShape& s, int64_t q_whole, int64_t k_whole, float* means, const void* x,
                   const void* dy, const float* q_weight, const float* k_weight, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * s.row_stride;
    const T* const grad = dy != nullptr ? static_cast<const T*>(dy) + row * s.row_stride : nullptr;
    for_groups(s, [&](int64_t, int64_t at, int64_t width, bool is_q) HWY_ATTR {
      const float sum = grad != nullptr ? dot_of_row<T>(width, s.weight_offset, grad + at, from + at,
                                                        is_q ? q_weight : k_weight)
                                        : sum_over(width, [&](int64_t i, auto span, Vector squares) HWY_ATTR {
                                            const Vector value = load(from + at + i, span);
                                            return hn::MulAdd(value, value, squares);
                                          });
      means[2 * row + (is_q ? 0 : 1)] = sum / static_cast<float>(is_q ? q_whole : k_whole);
    });
  }
}

// Sums over the groups [begin, end) of q or of k, numbered through all rows. A row has `groups` of `width`
// elements; the first is at element `at` and has statistic `first`.
template <typename T>
void weight_groups(const QkNormShape& s, float* partial, const void* dy, const void* x, const float* rstd,
                   bool is_q, int64_t begin, int64_t end) {
  const int64_t groups = is_q ? s.q_groups : s.k_groups, width = is_q ? s.q_width : s.k_width;
  const int64_t at = is_q ? 0 : s.q_groups * s.q_width, first = is_q ? 0 : s.q_groups;
  sum_rows(partial, begin, end, width, [&](int64_t i, int64_t c, auto span, Vector sum) HWY_ATTR {
    const int64_t row = i / groups, g = i % groups;
    const int64_t place = row * s.row_stride + at + g * width + c;
    return hn::MulAdd(
        hn::Mul(load(static_cast<const T*>(dy) + place, span), load(static_cast<const T*>(x) + place, span)),
        constant(rstd[row * s.groups() + first + g]), sum);
  });
}

void QkForward(const QkNormShape& s, void* y, float* rstd, const void* x, const float* q_weight,
               const float* k_weight, const float* means, int64_t begin, int64_t end) {
  const auto rows = by_dtype(s.dtype, forward_rows<float>, forward_rows<BF16>, forward_rows<F16>);
  rows(s, y, rstd, x, q_weight, k_weight, means, begin, end);
}
void QkBackward(const QkNormShape& s, void* dx, const void* dy, const void* x, const float* rstd,
                const float* q_weight, const float* k_weight, const float* means, int64_t begin,
                int64_t end) {
  const auto rows = by_dtype(s.dtype, backward_rows<float>, backward_rows<BF16>, backward_rows<F16>);
  rows(s, dx, dy, x, rstd, q_weight, k_weight, means, begin, end);
}
void QkMeans(const QkNormShape& s, int64_t q_whole, int64_t k_whole, float* means, const void* x,
             const void* dy, const float* q_weight, const float* k_weight, int64_t begin, int64_t end) {
  const auto rows = by_dtype(s.dtype, means_of_rows<float>, means_of_rows<BF16>, means_of_rows<F16>);
  rows(s, q_whole, k_whole, means, x, dy, q_weight, k_weight, begin, end);
}
void QkWeight(const QkNormShape& s, float* partial, const void* dy, const void* x, const float* rstd,
              bool is_q, int64_t begin, int64_t end) {
  const auto groups = by_dtype(s.dtype, weight_groups<float>, weight_groups<BF16>, weight_groups<F16>);
  groups(s, partial, dy, x, rstd, is_q, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(QkForward);
HWY_EXPORT(QkBackward);
HWY_EXPORT(QkMeans);
HWY_EXPORT(QkWeight);

namespace {

void require_one_group(const QkNormShape& s, const float* means) {
  STRATA_CHECK(means == nullptr || (s.q_groups == 1 && s.k_groups == 1),
               "[qk_norm] q has {} groups and k {}: expected one each to use means over several ranks",
               s.q_groups, s.k_groups);
}

}  // namespace

void qk_norm_forward(const QkNormShape& s, void* y, float* rstd, const void* x, const float* q_weight,
                     const float* k_weight, const float* means) {
  require_activation_dtype(s.dtype, "qk_norm_forward");
  require_one_group(s, means);
  const auto kernel = HWY_DYNAMIC_DISPATCH(QkForward);
  parallel_ranges(s.rows, rows_per_task(s.row_stride), [&](int64_t begin, int64_t end) {
    kernel(s, y, rstd, x, q_weight, k_weight, means, begin, end);
  });
}

void qk_norm_backward_input(const QkNormShape& s, void* dx, const void* dy, const void* x, const float* rstd,
                            const float* q_weight, const float* k_weight, const float* means) {
  require_activation_dtype(s.dtype, "qk_norm_backward_input");
  require_one_group(s, means);
  const auto kernel = HWY_DYNAMIC_DISPATCH(QkBackward);
  parallel_ranges(s.rows, rows_per_task(s.row_stride), [&](int64_t begin, int64_t end) {
    kernel(s, dx, dy, x, rstd, q_weight, k_weight, means, begin, end);
  });
}

void qk_norm_means(const QkNormShape& s, int64_t q_whole, int64_t k_whole, float* means, const void* x,
                   const void* dy, const float* q_weight, const float* k_weight) {
  require_activation_dtype(s.dtype, "qk_norm_means");
  require_one_group(s, means);
  const auto kernel = HWY_DYNAMIC_DISPATCH(QkMeans);
  parallel_ranges(s.rows, rows_per_task(s.row_stride), [&](int64_t begin, int64_t end) {
    kernel(s, q_whole, k_whole, means, x, dy, q_weight, k_weight, begin, end);
  });
}

int64_t qk_norm_weight_scratch_bytes(const QkNormShape& s) {
  return std::max(row_blocks_scratch_bytes(s.rows * s.q_groups, s.q_width),
                  row_blocks_scratch_bytes(s.rows * s.k_groups, s.k_width));
}

void qk_norm_backward_weight(const QkNormShape& s, float* dq_weight, float* dk_weight, const void* dy,
                             const void* x, const float* rstd, bool accumulate_q, bool accumulate_k,
                             void* scratch) {
  require_activation_dtype(s.dtype, "qk_norm_backward_weight");
  const auto kernel = HWY_DYNAMIC_DISPATCH(QkWeight);
  float* const partials = static_cast<float*>(scratch);
  for (const bool is_q : {true, false}) {
    const int64_t all = s.rows * (is_q ? s.q_groups : s.k_groups), width = is_q ? s.q_width : s.k_width;
    const RowBlocks cut = row_blocks(all);
    parallel_for(cut.blocks, [&](int64_t block) {
      const int64_t begin = block * cut.rows_per_block;
      kernel(s, partials + block * width, dy, x, rstd, is_q, begin,
             std::min(all, begin + cut.rows_per_block));
    });
    combine_partial_rows(is_q ? dq_weight : dk_weight, partials, cut.blocks, width,
                         is_q ? accumulate_q : accumulate_k);
  }
}

}  // namespace strata::cpu
#endif
