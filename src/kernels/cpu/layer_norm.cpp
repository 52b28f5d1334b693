#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T>
void forward_row(const NormShape& shape, T* y, T* h, float* mean, float* rstd, const T* x, const T* residual,
                 const float* weight, const float* bias) {
  const int64_t dim = shape.dim;
  float sum = 0;
  if (residual != nullptr) {
    sum = sum_over(dim, [&](int64_t i, auto span, Vector s) HWY_ATTR {
      return hn::Add(s, store(h + i, hn::Add(load(x + i, span), load(residual + i, span)), span));
    });
    x = h;
  } else {
    sum =
        sum_over(dim, [&](int64_t i, auto span, Vector s) HWY_ATTR { return hn::Add(s, load(x + i, span)); });
  }
  *mean = sum / static_cast<float>(dim);
  const Vector center = constant(*mean);
  const float squares = sum_over(dim, [&](int64_t i, auto span, Vector s) HWY_ATTR {
    const Vector d = keep(hn::Sub(load(x + i, span), center), span);
    return hn::MulAdd(d, d, s);
  });
  *rstd = 1.0f / std::sqrt(squares / static_cast<float>(dim) + shape.eps);
  const Vector factor = constant(*rstd);
  for_vectors(dim, [&](int64_t i, auto span) HWY_ATTR {
    const Vector xhat = hn::Mul(hn::Sub(load(x + i, span), center), factor);
    const Vector shift = bias != nullptr ? load(bias + i, span) : zero();
    store(y + i, hn::MulAdd(xhat, load(weight + i, span), shift), span);
  });
}

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh, with g = dy * weight, xhat = (h - mean) * rstd.
template <typename T>
void backward_row(const NormShape& shape, T* dx, const T* dy, const T* h, float mean, float rstd,
                  const float* weight, const T* dh) {
  const Vector center = constant(mean), factor = constant(rstd);
  const TwoSums sums =
      two_sums_over(shape.dim, [&](int64_t i, auto span, Vector& total, Vector& dot) HWY_ATTR {
        const Vector g = hn::Mul(load(dy + i, span), load(weight + i, span));
        total = hn::Add(total, g);
        dot = hn::MulAdd(g, hn::Sub(load(h + i, span), center), dot);
      });
  const Vector mean_g = constant(sums.first / static_cast<float>(shape.dim));
  const Vector mean_gx = constant(sums.second * rstd / static_cast<float>(shape.dim));
  for_vectors(shape.dim, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(dy + i, span), load(weight + i, span));
    const Vector xhat = hn::Mul(hn::Sub(load(h + i, span), center), factor);
    const Vector inner = hn::NegMulAdd(xhat, mean_gx, hn::Sub(g, mean_g));
    const Vector other = dh != nullptr ? load(dh + i, span) : zero();
    store(dx + i, hn::MulAdd(factor, inner, other), span);
  });
}

template <typename T>
void forward_rows(const NormShape& shape, void* y, void* h, float* mean, float* rstd, const void* x,
                  const void* residual, const float* weight, const float* bias, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * shape.dim;
    forward_row(shape, static_cast<T*>(y) + at, h == nullptr ? nullptr : static_cast<T*>(h) + at, mean + row,
                rstd + row, static_cast<const T*>(x) + at,
                residual == nullptr ? nullptr : static_cast<const T*>(residual) + at, weight, bias);
  }
}

template <typename T>
void backward_rows(const NormShape& shape, void* dx, const void* dy, const void* h, const float* mean,
                   const float* rstd, const float* weight, const void* dh, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * shape.dim;
    backward_row(shape, static_cast<T*>(dx) + at, static_cast<const T*>(dy) + at,
                 static_cast<const T*>(h) + at, mean[row], rstd[row], weight,
                 dh == nullptr ? nullptr : static_cast<const T*>(dh) + at);
  }
}

template <typename T>
void weight_rows(const NormShape& shape, float* partial_w, float* partial_b, const void* dy, const void* h,
                 const float* mean, const float* rstd, int64_t begin, int64_t end) {
  const T* const dy_t = static_cast<const T*>(dy);
  const T* const h_t = static_cast<const T*>(h);
  sum_rows(partial_w, begin, end, shape.dim, [&](int64_t row, int64_t c, auto span, Vector sum) HWY_ATTR {
    const int64_t at = row * shape.dim + c;
    const Vector xhat = hn::Mul(hn::Sub(load(h_t + at, span), constant(mean[row])), constant(rstd[row]));
    return hn::MulAdd(load(dy_t + at, span), xhat, sum);
  });
  sum_rows(partial_b, begin, end, shape.dim, [&](int64_t row, int64_t c, auto span, Vector sum) HWY_ATTR {
    return hn::Add(sum, load(dy_t + row * shape.dim + c, span));
  });
}

void LayerForward(const NormShape& shape, void* y, void* h, float* mean, float* rstd, const void* x,
                  const void* residual, const float* weight, const float* bias, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, forward_rows<float>, forward_rows<BF16>, forward_rows<F16>);
  rows(shape, y, h, mean, rstd, x, residual, weight, bias, begin, end);
}
void LayerBackward(const NormShape& shape, void* dx, const void* dy, const void* h, const float* mean,
                   const float* rstd, const float* weight, const void* dh, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, backward_rows<float>, backward_rows<BF16>, backward_rows<F16>);
  rows(shape, dx, dy, h, mean, rstd, weight, dh, begin, end);
}
void LayerWeight(const NormShape& shape, float* partial_w, float* partial_b, const void* dy, const void* h,
                 const float* mean, const float* rstd, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, weight_rows<float>, weight_rows<BF16>, weight_rows<F16>);
  rows(shape, partial_w, partial_b, dy, h, mean, rstd, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(LayerForward);
HWY_EXPORT(LayerBackward);
HWY_EXPORT(LayerWeight);

void layer_norm_forward(const NormShape& shape, void* y, void* h, float* mean, float* rstd, const void* x,
                        const void* residual, const float* weight, const float* bias) {
  require_activation_dtype(shape.dtype, "layer_norm_forward");
  STRATA_CHECK(residual == nullptr || h != nullptr,
               "[layer_norm_forward] a residual needs h to hold the sum");
  const auto kernel = HWY_DYNAMIC_DISPATCH(LayerForward);
  parallel_ranges(shape.rows, rows_per_task(shape.dim), [&](int64_t begin, int64_t end) {
    kernel(shape, y, h, mean, rstd, x, residual, weight, bias, begin, end);
  });
}

void layer_norm_backward_input(const NormShape& shape, void* dx, const void* dy, const void* h,
                               const float* mean, const float* rstd, const float* weight, const void* dh) {
  require_activation_dtype(shape.dtype, "layer_norm_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(LayerBackward);
  parallel_ranges(shape.rows, rows_per_task(shape.dim), [&](int64_t begin, int64_t end) {
    kernel(shape, dx, dy, h, mean, rstd, weight, dh, begin, end);
  });
}

int64_t layer_norm_weight_scratch_bytes(const NormShape& shape) {
  return 2 * row_blocks_scratch_bytes(shape.rows, shape.dim);
}

void layer_norm_backward_weight(const NormShape& shape, float* dw, float* db, const void* dy, const void* h,
                                const float* mean, const float* rstd, bool accumulate, void* scratch) {
  require_activation_dtype(shape.dtype, "layer_norm_backward_weight");
  const RowBlocks cut = row_blocks(shape.rows);
  float* const partials_w = static_cast<float*>(scratch);
  float* const partials_b = partials_w + cut.blocks * shape.dim;
  const auto kernel = HWY_DYNAMIC_DISPATCH(LayerWeight);
  parallel_for(cut.blocks, [&](int64_t block) {
    const int64_t begin = block * cut.rows_per_block;
    kernel(shape, partials_w + block * shape.dim, partials_b + block * shape.dim, dy, h, mean, rstd, begin,
           std::min(shape.rows, begin + cut.rows_per_block));
  });
  combine_partial_rows(dw, partials_w, cut.blocks, shape.dim, accumulate);
  if (db != nullptr) combine_partial_rows(db, partials_b, cut.blocks, shape.dim, accumulate);
}

}  // namespace strata::cpu
#endif
