#include "kernels/cpu/embedding.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T, typename Entry>
void gather_rows(const EmbeddingShape& shape, void* out, const int32_t* ids, const void* table,
                 const float* pos_table, const int32_t* positions, const int32_t* vocab_start, int64_t begin,
                 int64_t end) {
  const Vector scale = constant(shape.scale);
  for (int64_t row = begin; row < end; ++row) {
    T* const to = static_cast<T*>(out) + row * shape.dim;
    const int64_t entry = row_of_id(shape, vocab_start, ids[row]);
    if (entry < 0) {
      std::memset(static_cast<void*>(to), 0, static_cast<size_t>(shape.dim) * sizeof(T));
      continue;
    }
    const Entry* const from = static_cast<const Entry*>(table) + entry * shape.dim;
    if (pos_table == nullptr) {
      for_vectors(shape.dim, [&](int64_t i, auto span)
                                 HWY_ATTR { store(to + i, hn::Mul(scale, load(from + i, span)), span); });
    } else {
      const float* const shift = pos_table + int64_t{positions[row]} * shape.dim;
      for_vectors(shape.dim, [&](int64_t i, auto span) HWY_ATTR {
        store(to + i, hn::MulAdd(scale, load(from + i, span), load(shift + i, span)), span);
      });
    }
  }
}

template <typename T>
void scatter_columns(const EmbeddingShape& shape, float* d_table, const void* dy, const int32_t* ids,
                     const int32_t* vocab_start, int64_t begin, int64_t end) {
  const Vector scale = constant(shape.scale);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t entry = row_of_id(shape, vocab_start, ids[row]);
    if (ids[row] == shape.padding || entry < 0) continue;
    const T* const from = static_cast<const T*>(dy) + row * shape.dim + begin;
    float* const to = d_table + entry * shape.dim + begin;
    for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
      store(to + i, hn::MulAdd(scale, load(from + i, span), load(to + i, span)), span);
    });
  }
}

void GatherRows(const EmbeddingShape& shape, void* out, const int32_t* ids, const void* table,
                const float* pos_table, const int32_t* positions, const int32_t* vocab_start, int64_t begin,
                int64_t end) {
  const auto rows =
      shape.table_dtype == DType::kBF16
          ? by_dtype(shape.dtype, gather_rows<float, BF16>, gather_rows<BF16, BF16>, gather_rows<F16, BF16>)
          : by_dtype(shape.dtype, gather_rows<float, float>, gather_rows<BF16, float>,
                     gather_rows<F16, float>);
  rows(shape, out, ids, table, pos_table, positions, vocab_start, begin, end);
}
void ScatterColumns(const EmbeddingShape& shape, float* d_table, const void* dy, const int32_t* ids,
                    const int32_t* vocab_start, int64_t begin, int64_t end) {
  const auto columns =
      by_dtype(shape.dtype, scatter_columns<float>, scatter_columns<BF16>, scatter_columns<F16>);
  columns(shape, d_table, dy, ids, vocab_start, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(GatherRows);
HWY_EXPORT(ScatterColumns);

namespace {

void require_ids(const int32_t* ids, int64_t rows, int64_t size, const char* what) {
  for (int64_t row = 0; row < rows; ++row) {
    STRATA_CHECK(ids[row] >= 0 && ids[row] < size, "[embedding] {} {} in row {}: expected 0 to {}", what,
                 ids[row], row, size - 1);
  }
}

void require_parts(const EmbeddingShape& shape) {
  STRATA_CHECK(shape.parts > 0 && shape.vocab % shape.parts == 0,
               "[embedding] {} parts of {} rows: expected parts of equal size", shape.parts, shape.vocab);
}

}  // namespace

void embedding_forward(const EmbeddingShape& shape, void* out, const int32_t* ids, const void* table,
                       const float* pos_table, const int32_t* positions, const int32_t* vocab_start) {
  require_activation_dtype(shape.dtype, "embedding_forward");
  require_parts(shape);
  if (vocab_start == nullptr) require_ids(ids, shape.rows, shape.vocab, "id");
  if (pos_table != nullptr) require_ids(positions, shape.rows, shape.positions, "position");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatherRows);
  parallel_ranges(shape.rows, rows_per_task(shape.dim), [&](int64_t begin, int64_t end) {
    kernel(shape, out, ids, table, pos_table, positions, vocab_start, begin, end);
  });
}

void embedding_backward(const EmbeddingShape& shape, float* d_table, const void* dy, const int32_t* ids,
                        bool accumulate, const int32_t* vocab_start) {
  require_activation_dtype(shape.dtype, "embedding_backward");
  require_parts(shape);
  if (vocab_start == nullptr) require_ids(ids, shape.rows, shape.vocab, "id");
  if (!accumulate) fill_zero(d_table, shape.vocab * shape.dim * int64_t{sizeof(float)});
  // A column's sum does not depend on the ranges, so they may depend on the number of threads: wide ranges,
  // whole cache lines.
  const int64_t width = std::max<int64_t>(64, (shape.dim / compute_threads() + 15) / 16 * 16);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScatterColumns);
  parallel_ranges(shape.dim, width, [&](int64_t begin, int64_t end) {
    kernel(shape, d_table, dy, ids, vocab_start, begin, end);
  });
}

void targets_ahead(int64_t n, int64_t length, int32_t* tokens, int32_t* next, const int32_t* targets,
                   const int32_t* ahead) {
  for (int64_t i = 0; i < n; ++i) {
    tokens[i] = std::max(ahead[i], 0);
    next[i] = (i + 1) % length != 0 && targets[i] >= 0 ? ahead[i + 1] : -1;
  }
}

}  // namespace strata::cpu
#endif
