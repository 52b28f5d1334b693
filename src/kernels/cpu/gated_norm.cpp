#include "kernels/cpu/gated_norm.h"

#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/gates-inl.h"
#include "kernels/cpu/rms_rows-inl.h"
#include "kernels/cpu/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The kernels below call a group a row: group g of all has its channels at g · size.
HWY_INLINE const float* weight_of(const GatedNormShape& s, const float* weight, int64_t g) {
  return s.is_shared ? weight : weight + g % s.groups * s.size;
}

template <typename F, typename T>
void norm_groups(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                 const float* weight, const float* means, int64_t begin, int64_t end) {
  for (int64_t g = begin; g < end; ++g) {
    const T *const from = static_cast<const T*>(x) + g * s.size, *const at =
                                                                     static_cast<const T*>(gate) + g * s.size;
    T* const to = static_cast<T*>(y) + g * s.size;
    const float* const w = weight_of(s, weight, g);
    const auto value = [&](int64_t i, auto span) HWY_ATTR {
      const Vector v = load(from + i, span);
      return s.gate_first ? hn::Mul(v, F::value(load(at + i, span))) : v;
    };
    float mean = 0;
    if (means != nullptr) {
      mean = means[g];
    } else {
      mean = sum_over(s.size,
                      [&](int64_t i, auto span, Vector squares) HWY_ATTR {
                        const Vector v = value(i, span);
                        return hn::MulAdd(v, v, squares);
                      }) /
             static_cast<float>(s.size);
    }
    rstd[g] = 1.0f / std::sqrt(mean + s.eps);
    const Vector scale = constant(rstd[g]);
    for_vectors(s.size, [&](int64_t i, auto span) HWY_ATTR {
      const Vector n = hn::Mul(hn::Mul(value(i, span), scale), load(w + i, span));
      store(to + i, s.gate_first ? n : hn::Mul(n, F::value(load(at + i, span))), span);
    });
  }
}

template <typename F, typename T>
void grad_groups(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                 const void* gate, const float* weight, const float* rstd, const float* means, int64_t begin,
                 int64_t end) {
  for (int64_t g = begin; g < end; ++g) {
    const int64_t first = g * s.size;
    const T *const grad = static_cast<const T*>(dy) + first, *const from = static_cast<const T*>(x) + first,
                   *const at = static_cast<const T*>(gate) + first;
    T *const to_x = static_cast<T*>(dx) + first, *const to_gate = static_cast<T*>(dgate) + first;
    const float* const w = weight_of(s, weight, g);
    float mean = 0;
    if (means != nullptr) {
      mean = means[g];
    } else {
      // The gate multiplies the one factor or the other.
      mean = sum_over(s.size,
                      [&](int64_t i, auto span, Vector sum) HWY_ATTR {
                        const Vector gated = hn::Mul(load(from + i, span), F::value(load(at + i, span)));
                        return hn::MulAdd(hn::Mul(load(grad + i, span), load(w + i, span)), gated, sum);
                      }) /
             static_cast<float>(s.size);
    }
    const Vector scale = constant(rstd[g]), of_value = constant(rstd[g] * rstd[g] * mean);
    for_vectors(s.size, [&](int64_t i, auto span) HWY_ATTR {
      const Vector value = load(from + i, span), dn = hn::Mul(load(grad + i, span), load(w + i, span));
      const ValueAndSlope f = F::both(load(at + i, span));
      if (s.gate_first) {
        const Vector v = hn::Mul(value, f.value);
        const Vector dv = hn::Mul(scale, hn::NegMulAdd(v, of_value, dn));
        store(to_gate + i, hn::Mul(hn::Mul(dv, value), f.slope), span);
        store(to_x + i, hn::Mul(dv, f.value), span);
      } else {
        const Vector dv = hn::Mul(scale, hn::NegMulAdd(value, of_value, hn::Mul(dn, f.value)));
        store(to_gate + i, hn::Mul(hn::Mul(dn, hn::Mul(value, scale)), f.slope), span);
        store(to_x + i, dv, span);
      }
    });
  }
}

// Sums over rows [begin, end): of groups if they share the weight, else of all channels.
template <typename F, typename T>
void weight_rows(const GatedNormShape& s, float* partial, const void* dy, const void* x, const void* gate,
                 const float* rstd, int64_t begin, int64_t end) {
  const int64_t groups = s.is_shared ? 1 : s.groups;
  for (int64_t g = 0; g < groups; ++g) {
    sum_rows(partial + g * s.size, begin, end, s.size,
             [&](int64_t row, int64_t c, auto span, Vector sum) HWY_ATTR {
               const int64_t group = row * groups + g, at = group * s.size + c;
               const Vector gated = hn::Mul(load(static_cast<const T*>(x) + at, span),
                                            F::value(load(static_cast<const T*>(gate) + at, span)));
               const Vector normed = hn::Mul(gated, constant(rstd[group]));
               return hn::MulAdd(load(static_cast<const T*>(dy) + at, span), normed, sum);
             });
  }
}

template <typename F, typename T>
void mean_rows(const GatedNormShape& s, float whole, float* means, const void* x, const void* gate,
               const void* dy, const float* weight, int64_t begin, int64_t end) {
  const int64_t width = s.width();
  for (int64_t row = begin; row < end; ++row) {
    const T *const from = static_cast<const T*>(x) + row * width,
                   *const at = static_cast<const T*>(gate) + row * width,
                   *const grad = dy == nullptr ? nullptr : static_cast<const T*>(dy) + row * width;
    const float sum = sum_over(width, [&](int64_t i, auto span, Vector total) HWY_ATTR {
      const Vector value = load(from + i, span);
      if (grad == nullptr) {
        const Vector v = s.gate_first ? hn::Mul(value, F::value(load(at + i, span))) : value;
        return hn::MulAdd(v, v, total);
      }
      const Vector gated = hn::Mul(value, F::value(load(at + i, span)));
      return hn::MulAdd(hn::Mul(load(grad + i, span), load(weight + i, span)), gated, total);
    });
    means[row] = sum / whole;
  }
}

// Calls run(F, T) with the gate's function and the type of the arrays.
template <typename Run>
HWY_INLINE void with_types(const GatedNormShape& s, const Run& run) {
  with_gate(s.kind, [&](auto function) {
    switch (s.dtype) {
      case DType::kBF16:
        return run(function, BF16());
      case DType::kF16:
        return run(function, F16());
      default:
        return run(function, float());
    }
  });
}

void NormGroups(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                const float* weight, const float* means, int64_t begin, int64_t end) {
  with_types(s, [&](auto f, auto t) {
    norm_groups<decltype(f), decltype(t)>(s, y, rstd, x, gate, weight, means, begin, end);
  });
}
void GradGroups(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                const void* gate, const float* weight, const float* rstd, const float* means, int64_t begin,
                int64_t end) {
  with_types(s, [&](auto f, auto t) {
    grad_groups<decltype(f), decltype(t)>(s, dx, dgate, dy, x, gate, weight, rstd, means, begin, end);
  });
}
void WeightRows(const GatedNormShape& s, float* partial, const void* dy, const void* x, const void* gate,
                const float* rstd, int64_t begin, int64_t end) {
  with_types(s, [&](auto f, auto t) {
    weight_rows<decltype(f), decltype(t)>(s, partial, dy, x, gate, rstd, begin, end);
  });
}
void MeanRows(const GatedNormShape& s, float whole, float* means, const void* x, const void* gate,
              const void* dy, const float* weight, int64_t begin, int64_t end) {
  with_types(s, [&](auto f, auto t) {
    mean_rows<decltype(f), decltype(t)>(s, whole, means, x, gate, dy, weight, begin, end);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(NormGroups);
HWY_EXPORT(GradGroups);
HWY_EXPORT(WeightRows);
HWY_EXPORT(MeanRows);

namespace {

// Rows of the weight's gradient, and their channels.
int64_t weight_rows_of(const GatedNormShape& s) {
  return s.is_shared ? s.rows * s.groups : s.rows;
}
int64_t weight_columns_of(const GatedNormShape& s) {
  return s.is_shared ? s.size : s.width();
}

}  // namespace

void gated_norm_forward(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                        const float* weight, const float* means) {
  require_activation_dtype(s.dtype, "gated_norm_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormGroups);
  parallel_ranges(s.rows * s.groups, rows_per_task(s.size), [&](int64_t begin, int64_t end) {
    kernel(s, y, rstd, x, gate, weight, means, begin, end);
  });
}

void gated_norm_backward_input(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                               const void* gate, const float* weight, const float* rstd, const float* means) {
  require_activation_dtype(s.dtype, "gated_norm_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GradGroups);
  parallel_ranges(s.rows * s.groups, rows_per_task(s.size), [&](int64_t begin, int64_t end) {
    kernel(s, dx, dgate, dy, x, gate, weight, rstd, means, begin, end);
  });
}

int64_t gated_norm_weight_scratch_bytes(const GatedNormShape& s) {
  return row_blocks_scratch_bytes(weight_rows_of(s), weight_columns_of(s));
}

void gated_norm_backward_weight(const GatedNormShape& s, float* dw, const void* dy, const void* x,
                                const void* gate, const float* rstd, bool accumulate, void* scratch) {
  require_activation_dtype(s.dtype, "gated_norm_backward_weight");
  const int64_t rows = weight_rows_of(s), columns = weight_columns_of(s);
  const RowBlocks cut = row_blocks(rows);
  float* const partials = static_cast<float*>(scratch);
  const auto kernel = HWY_DYNAMIC_DISPATCH(WeightRows);
  parallel_for(cut.blocks, [&](int64_t block) {
    const int64_t begin = block * cut.rows_per_block;
    kernel(s, partials + block * columns, dy, x, gate, rstd, begin,
           std::min(rows, begin + cut.rows_per_block));
  });
  combine_partial_rows(dw, partials, cut.blocks, columns, accumulate);
}

void gated_norm_means(const GatedNormShape& s, int64_t whole, float* means, const void* x, const void* gate,
                      const void* dy, const float* weight) {
  require_activation_dtype(s.dtype, "gated_norm_means");
  const auto kernel = HWY_DYNAMIC_DISPATCH(MeanRows);
  parallel_ranges(s.rows, rows_per_task(s.width()), [&](int64_t begin, int64_t end) {
    kernel(s, static_cast<float>(whole), means, x, gate, dy, weight, begin, end);
  });
}

}  // namespace strata::cpu
#endif
