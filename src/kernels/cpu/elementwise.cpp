#include "kernels/cpu/elementwise.h"

#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T>
void add_range(void* out, const void* a, const void* b, int64_t begin, int64_t end) {
  const T* const left = static_cast<const T*>(a) + begin;
  const T* const right = static_cast<const T*>(b) + begin;
  T* const sum = static_cast<T*>(out) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    store(sum + i, hn::Add(load(left + i, span), load(right + i, span)), span);
  });
}

template <typename T>
void add_row_range(void* out, const void* x, const float* row, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* const from = static_cast<const T*>(x) + r * columns;
    T* const to = static_cast<T*>(out) + r * columns;
    for_vectors(columns, [&](int64_t i, auto span) HWY_ATTR {
      store(to + i, hn::Add(load(from + i, span), load(row + i, span)), span);
    });
  }
}

template <typename T>
void scale_columns_range(void* out, const void* x, const float* row, int64_t columns, int64_t begin,
                         int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* const from = static_cast<const T*>(x) + r * columns;
    T* const to = static_cast<T*>(out) + r * columns;
    for_vectors(columns, [&](int64_t i, auto span) HWY_ATTR {
      store(to + i, hn::Mul(load(from + i, span), load(row + i, span)), span);
    });
  }
}

template <typename Out, typename In>
void scale_range(void* out, const void* in, float factor, int64_t begin, int64_t end) {
  const In* const from = static_cast<const In*>(in) + begin;
  Out* const to = static_cast<Out*>(out) + begin;
  const Vector f = constant(factor);
  for_vectors(end - begin,
              [&](int64_t i, auto span) HWY_ATTR { store(to + i, hn::Mul(load(from + i, span), f), span); });
}

template <typename T>
void column_rows(float* partial, const void* in, int64_t columns, int64_t row_stride, int64_t begin,
                 int64_t end) {
  const T* const from = static_cast<const T*>(in);
  sum_rows(partial, begin, end, columns, [&](int64_t row, int64_t c, auto span, Vector sum) HWY_ATTR {
    return hn::Add(sum, load(from + row * row_stride + c, span));
  });
}

void AddRange(void* out, const void* a, const void* b, DType dtype, int64_t begin, int64_t end) {
  const auto range = by_dtype(dtype, add_range<float>, add_range<BF16>, add_range<F16>);
  range(out, a, b, begin, end);
}
void AddRowRange(void* out, const void* x, const float* row, DType dtype, int64_t columns, int64_t begin,
                 int64_t end) {
  const auto range = by_dtype(dtype, add_row_range<float>, add_row_range<BF16>, add_row_range<F16>);
  range(out, x, row, columns, begin, end);
}
void ScaleColumnsRange(void* out, const void* x, const float* row, DType dtype, int64_t columns,
                       int64_t begin, int64_t end) {
  const auto range =
      by_dtype(dtype, scale_columns_range<float>, scale_columns_range<BF16>, scale_columns_range<F16>);
  range(out, x, row, columns, begin, end);
}
// Multiplication by 1 is exact, so scaling implements casting.
void ScaleRange(void* out, DType out_dtype, const void* in, DType in_dtype, float factor, int64_t begin,
                int64_t end) {
  const auto range = by_dtype(
      in_dtype,
      by_dtype(out_dtype, scale_range<float, float>, scale_range<BF16, float>, scale_range<F16, float>),
      by_dtype(out_dtype, scale_range<float, BF16>, scale_range<BF16, BF16>, scale_range<F16, BF16>),
      by_dtype(out_dtype, scale_range<float, F16>, scale_range<BF16, F16>, scale_range<F16, F16>));
  range(out, in, factor, begin, end);
}
void ColumnRows(float* partial, const void* in, DType dtype, int64_t columns, int64_t row_stride,
                int64_t begin, int64_t end) {
  const auto rows = by_dtype(dtype, column_rows<float>, column_rows<BF16>, column_rows<F16>);
  rows(partial, in, columns, row_stride, begin, end);
}
void CombineRange(float* out, const float* partials, int64_t blocks, int64_t columns, bool accumulate,
                  int64_t begin, int64_t end) {
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    const int64_t c = begin + i;
    Vector sum = accumulate ? load(out + c, span) : zero();
    for (int64_t block = 0; block < blocks; ++block) {
      sum = hn::Add(sum, load(partials + block * columns + c, span));
    }
    store(out + c, sum, span);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(AddRange);
HWY_EXPORT(AddRowRange);
HWY_EXPORT(ScaleColumnsRange);
HWY_EXPORT(ScaleRange);
HWY_EXPORT(ColumnRows);
HWY_EXPORT(CombineRange);

namespace {
constexpr int64_t kChunk = 16384;
}

void require_activation_dtype(DType dtype, const char* kernel) {
  STRATA_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16,
               "[{}] dtype is {}: expected f32, bf16 or f16", kernel, name_of(dtype));
}

void combine_partial_rows(float* out, const float* partials, int64_t blocks, int64_t columns,
                          bool accumulate) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(CombineRange);
  parallel_ranges(columns, 512, [&](int64_t begin, int64_t end) {
    kernel(out, partials, blocks, columns, accumulate, begin, end);
  });
}

void add(void* out, const void* a, const void* b, int64_t n, DType dtype) {
  require_activation_dtype(dtype, "add");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRange);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) { kernel(out, a, b, dtype, begin, end); });
}

void add_row(void* out, const void* x, const float* row, int64_t rows, int64_t columns, DType dtype) {
  require_activation_dtype(dtype, "add_row");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRowRange);
  parallel_ranges(rows, rows_per_task(columns),
                  [&](int64_t begin, int64_t end) { kernel(out, x, row, dtype, columns, begin, end); });
}

void scale_columns(void* out, const void* x, const float* row, int64_t rows, int64_t columns, DType dtype) {
  require_activation_dtype(dtype, "scale_columns");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleColumnsRange);
  parallel_ranges(rows, rows_per_task(columns),
                  [&](int64_t begin, int64_t end) { kernel(out, x, row, dtype, columns, begin, end); });
}

void scale(void* out, const void* in, float factor, int64_t n, DType dtype) {
  require_activation_dtype(dtype, "scale");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRange);
  parallel_ranges(n, kChunk,
                  [&](int64_t begin, int64_t end) { kernel(out, dtype, in, dtype, factor, begin, end); });
}

void cast(void* out, DType out_dtype, const void* in, DType in_dtype, int64_t n) {
  require_activation_dtype(out_dtype, "cast");
  require_activation_dtype(in_dtype, "cast");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRange);
  parallel_ranges(
      n, kChunk, [&](int64_t begin, int64_t end) { kernel(out, out_dtype, in, in_dtype, 1.0f, begin, end); });
}

void fill_zero(void* out, int64_t bytes) {
  parallel_ranges(bytes, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(out) + begin, 0, static_cast<size_t>(end - begin));
  });
}

int64_t column_sums_scratch_bytes(int64_t rows, int64_t columns) {
  return row_blocks_scratch_bytes(rows, columns);
}

void column_sums(int64_t rows, int64_t columns, int64_t row_stride, float* out, const void* in, DType dtype,
                 bool accumulate, void* scratch) {
  require_activation_dtype(dtype, "column_sums");
  const RowBlocks cut = row_blocks(rows);
  float* const partials = static_cast<float*>(scratch);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ColumnRows);
  parallel_for(cut.blocks, [&](int64_t block) {
    const int64_t begin = block * cut.rows_per_block;
    kernel(partials + block * columns, in, dtype, columns, row_stride, begin,
           std::min(rows, begin + cut.rows_per_block));
  });
  combine_partial_rows(out, partials, cut.blocks, columns, accumulate);
}

}  // namespace strata::cpu
#endif
