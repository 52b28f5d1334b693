#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/rms_rows-inl.h"
#include "kernels/cpu/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T>
void forward_rows(const NormShape& shape, void* y, void* h, float* rstd, const void* x, const void* residual,
                  const float* weight, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * shape.dim;
    forward_row(shape.dim, shape.eps, shape.weight_offset, static_cast<T*>(y) + at,
                h == nullptr ? nullptr : static_cast<T*>(h) + at, rstd + row, static_cast<const T*>(x) + at,
                residual == nullptr ? nullptr : static_cast<const T*>(residual) + at, weight);
  }
}

template <typename T>
void backward_rows(const NormShape& shape, void* dx, const void* dy, const void* h, const float* rstd,
                   const float* weight, const void* dh, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * shape.dim;
    backward_row(shape.dim, shape.weight_offset, static_cast<T*>(dx) + at, static_cast<const T*>(dy) + at,
                 static_cast<const T*>(h) + at, rstd[row], weight,
                 dh == nullptr ? nullptr : static_cast<const T*>(dh) + at);
  }
}

template <typename T>
void weight_rows(const NormShape& shape, float* partial, const void* dy, const void* h, const float* rstd,
                 int64_t begin, int64_t end) {
  const T* const dy_t = static_cast<const T*>(dy);
  const T* const h_t = static_cast<const T*>(h);
  sum_rows(partial, begin, end, shape.dim, [&](int64_t row, int64_t c, auto span, Vector sum) HWY_ATTR {
    const int64_t at = row * shape.dim + c;
    return hn::MulAdd(hn::Mul(load(dy_t + at, span), load(h_t + at, span)), constant(rstd[row]), sum);
  });
}

void RmsForward(const NormShape& shape, void* y, void* h, float* rstd, const void* x, const void* residual,
                const float* weight, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, forward_rows<float>, forward_rows<BF16>, forward_rows<F16>);
  rows(shape, y, h, rstd, x, residual, weight, begin, end);
}
void RmsBackward(const NormShape& shape, void* dx, const void* dy, const void* h, const float* rstd,
                 const float* weight, const void* dh, int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, backward_rows<float>, backward_rows<BF16>, backward_rows<F16>);
  rows(shape, dx, dy, h, rstd, weight, dh, begin, end);
}
void RmsWeight(const NormShape& shape, float* partial, const void* dy, const void* h, const float* rstd,
               int64_t begin, int64_t end) {
  const auto rows = by_dtype(shape.dtype, weight_rows<float>, weight_rows<BF16>, weight_rows<F16>);
  rows(shape, partial, dy, h, rstd, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(RmsForward);
HWY_EXPORT(RmsBackward);
HWY_EXPORT(RmsWeight);

void rms_norm_forward(const NormShape& shape, void* y, void* h, float* rstd, const void* x,
                      const void* residual, const float* weight) {
  require_activation_dtype(shape.dtype, "rms_norm_forward");
  STRATA_CHECK(residual == nullptr || h != nullptr, "[rms_norm_forward] a residual needs h to hold the sum");
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsForward);
  parallel_ranges(shape.rows, rows_per_task(shape.dim), [&](int64_t begin, int64_t end) {
    kernel(shape, y, h, rstd, x, residual, weight, begin, end);
  });
}

void rms_norm_backward_input(const NormShape& shape, void* dx, const void* dy, const void* h,
                             const float* rstd, const float* weight, const void* dh) {
  require_activation_dtype(shape.dtype, "rms_norm_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsBackward);
  parallel_ranges(shape.rows, rows_per_task(shape.dim), [&](int64_t begin, int64_t end) {
    kernel(shape, dx, dy, h, rstd, weight, dh, begin, end);
  });
}

int64_t rms_norm_weight_scratch_bytes(const NormShape& shape) {
  return row_blocks_scratch_bytes(shape.rows, shape.dim);
}

void rms_norm_backward_weight(const NormShape& shape, float* dw, const void* dy, const void* h,
                              const float* rstd, bool accumulate, void* scratch) {
  require_activation_dtype(shape.dtype, "rms_norm_backward_weight");
  const RowBlocks cut = row_blocks(shape.rows);
  float* const partials = static_cast<float*>(scratch);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsWeight);
  parallel_for(cut.blocks, [&](int64_t block) {
    const int64_t begin = block * cut.rows_per_block;
    kernel(shape, partials + block * shape.dim, dy, h, rstd, begin,
           std::min(shape.rows, begin + cut.rows_per_block));
  });
  combine_partial_rows(dw, partials, cut.blocks, shape.dim, accumulate);
}

}  // namespace strata::cpu
#endif
