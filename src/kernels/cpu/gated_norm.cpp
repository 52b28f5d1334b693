#include "kernels/cpu/gated_norm.h"

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/gate_math-inl.h"
#include "kernels/cpu/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The gate, before the norm or after it: h, the input of the norm, and the factor of its output.
template <typename Function, bool kFirst>
struct Gating {
  static HWY_INLINE Vector input(Vector x, Vector gate) {
    return kFirst ? hn::Mul(x, Function::value(gate)) : x;
  }
  static HWY_INLINE Vector output(Vector normed, Vector gate) {
    return kFirst ? normed : hn::Mul(normed, Function::value(gate));
  }
  // h · the gradient of h · rstd, from dy · weight.
  static HWY_INLINE Vector along(Vector dy, Vector x, Vector gate) {
    const Vector f = Function::value(gate);
    return kFirst ? hn::Mul(dy, hn::Mul(x, f)) : hn::Mul(hn::Mul(dy, f), x);
  }
};

// Σ h² over a group, or with dy Σ h · dy · weight · factor.
template <typename T, typename G>
HWY_INLINE float sum_of_group(int64_t width, const T* x, const T* gate, const T* dy, const float* weight) {
  if (dy == nullptr) {
    return sum_over(width, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
      const Vector h = G::input(load(x + i, span), load(gate + i, span));
      return hn::MulAdd(h, h, sum);
    });
  }
  return sum_over(width, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
    const Vector weighted = hn::Mul(load(dy + i, span), load(weight + i, span));
    return hn::Add(G::along(weighted, load(x + i, span), load(gate + i, span)), sum);
  });
}

template <typename T, typename Function, bool kFirst>
void forward_rows(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                  const float* weight, const float* means, int64_t begin, int64_t end) {
  using G = Gating<Function, kFirst>;
  for (int64_t i = begin * s.groups; i < end * s.groups; ++i) {
    const T* const from = static_cast<const T*>(x) + i * s.width;
    const T* const by = static_cast<const T*>(gate) + i * s.width;
    T* const to = static_cast<T*>(y) + i * s.width;
    const float* const factors = s.shared ? weight : weight + i % s.groups * s.width;
    const float mean = means != nullptr ? means[i]
                                        : sum_of_group<T, G>(s.width, from, by, nullptr, nullptr) /
                                              static_cast<float>(s.width);
    rstd[i] = 1.0f / std::sqrt(mean + s.eps);
    const Vector scale = constant(rstd[i]);
    for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
      const Vector z = load(by + c, span);
      const Vector normed =
          hn::Mul(hn::Mul(G::input(load(from + c, span), z), scale), load(factors + c, span));
      store(to + c, G::output(normed, z), span);
    });
  }
}

template <typename T, typename Function, bool kFirst>
void backward_rows(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                   const void* gate, const float* rstd, const float* weight, const float* means,
                   int64_t begin, int64_t end) {
  using G = Gating<Function, kFirst>;
  for (int64_t i = begin * s.groups; i < end * s.groups; ++i) {
    const T* const from = static_cast<const T*>(x) + i * s.width;
    const T* const by = static_cast<const T*>(gate) + i * s.width;
    const T* const grad = static_cast<const T*>(dy) + i * s.width;
    T* const to = static_cast<T*>(dx) + i * s.width;
    T* const to_gate = static_cast<T*>(dgate) + i * s.width;
    const float* const factors = s.shared ? weight : weight + i % s.groups * s.width;
    const float mean =
        means != nullptr ? means[i]
                         : sum_of_group<T, G>(s.width, from, by, grad, factors) / static_cast<float>(s.width);
    const Vector scale = constant(rstd[i]), slope = constant(mean * rstd[i] * rstd[i]);
    for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
      const Vector value = load(from + c, span);
      const ValueAndSlope f = Function::both(load(by + c, span));
      const Vector weighted = hn::Mul(load(grad + c, span), load(factors + c, span));
      Vector d, d_function;  // of x, and of the gate's function
      if constexpr (kFirst) {
        const Vector dh = hn::Mul(scale, hn::NegMulAdd(hn::Mul(value, f.value), slope, weighted));
        d = hn::Mul(dh, f.value);
        d_function = hn::Mul(dh, value);
      } else {
        d = hn::Mul(scale, hn::NegMulAdd(value, slope, hn::Mul(weighted, f.value)));
        d_function = hn::Mul(weighted, hn::Mul(value, scale));
      }
      store(to + c, d, span);
      store(to_gate + c, hn::Mul(d_function, f.slope), span);
    });
  }
}

template <typename T, typename Function, bool kFirst>
void means_of_rows(const GatedNormShape& s, int64_t whole, float* means, const void* x, const void* gate,
                   const void* dy, const float* weight, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * s.width;
    const T* const grad = dy != nullptr ? static_cast<const T*>(dy) + first : nullptr;
    means[row] =
        sum_of_group<T, Gating<Function, kFirst>>(s.width, static_cast<const T*>(x) + first,
                                                  static_cast<const T*>(gate) + first, grad, weight) /
        static_cast<float>(whole);
  }
}

// Sums of dy · h · rstd (· f(gate)) over the groups [begin, end) of those with the same weight: `step` apart,
// the first is group `first`.
template <typename T, typename Function, bool kFirst>
void weight_groups(const GatedNormShape& s, float* partial, const void* dy, const void* x, const void* gate,
                   const float* rstd, int64_t first, int64_t step, int64_t begin, int64_t end) {
  using G = Gating<Function, kFirst>;
  sum_rows(partial, begin, end, s.width, [&](int64_t i, int64_t c, auto span, Vector sum) HWY_ATTR {
    const int64_t group = first + i * step, place = group * s.width + c;
    const Vector along =
        G::along(load(static_cast<const T*>(dy) + place, span), load(static_cast<const T*>(x) + place, span),
                 load(static_cast<const T*>(gate) + place, span));
    return hn::MulAdd(along, constant(rstd[group]), sum);
  });
}

// Calls body(function, std::bool_constant of gate_first).
template <typename Body>
HWY_INLINE void with_gating(const GatedNormShape& s, const Body& body) {
  const auto with_order = [&](auto function) {
    if (s.gate_first) return body(function, std::true_type());
    return body(function, std::false_type());
  };
  if (s.gate == GateKind::kSigmoid) return with_order(SigmoidGate());
  return with_order(Silu());
}

void NormForward(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                 const float* weight, const float* means, int64_t begin, int64_t end) {
  with_gating(s, [&](auto function, auto first) {
    using F = decltype(function);
    const auto rows = by_dtype(s.dtype, forward_rows<float, F, first()>, forward_rows<BF16, F, first()>,
                               forward_rows<F16, F, first()>);
    rows(s, y, rstd, x, gate, weight, means, begin, end);
  });
}
void NormBackward(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                  const void* gate, const float* rstd, const float* weight, const float* means, int64_t begin,
                  int64_t end) {
  with_gating(s, [&](auto function, auto first) {
    using F = decltype(function);
    const auto rows = by_dtype(s.dtype, backward_rows<float, F, first()>, backward_rows<BF16, F, first()>,
                               backward_rows<F16, F, first()>);
    rows(s, dx, dgate, dy, x, gate, rstd, weight, means, begin, end);
  });
}
void NormMeans(const GatedNormShape& s, int64_t whole, float* means, const void* x, const void* gate,
               const void* dy, const float* weight, int64_t begin, int64_t end) {
  with_gating(s, [&](auto function, auto first) {
    using F = decltype(function);
    const auto rows = by_dtype(s.dtype, means_of_rows<float, F, first()>, means_of_rows<BF16, F, first()>,
                               means_of_rows<F16, F, first()>);
    rows(s, whole, means, x, gate, dy, weight, begin, end);
  });
}
void NormWeight(const GatedNormShape& s, float* partial, const void* dy, const void* x, const void* gate,
                const float* rstd, int64_t first_group, int64_t step, int64_t begin, int64_t end) {
  with_gating(s, [&](auto function, auto first) {
    using F = decltype(function);
    const auto groups = by_dtype(s.dtype, weight_groups<float, F, first()>, weight_groups<BF16, F, first()>,
                                 weight_groups<F16, F, first()>);
    groups(s, partial, dy, x, gate, rstd, first_group, step, begin, end);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(NormMeans);
HWY_EXPORT(NormWeight);

namespace {

void require_gated_norm(const GatedNormShape& s, const float* means, const char* kernel) {
  require_activation_dtype(s.dtype, kernel);
  STRATA_CHECK(s.gate != GateKind::kIdentity, "[{}] the gate is the identity: expected silu or sigmoid",
               kernel);
  STRATA_CHECK(means == nullptr || s.groups == 1, "[{}] {} groups: expected one to use means over ranks",
               kernel, s.groups);
}

// Groups that add to one partial row of sums, and the columns of such a row.
struct WeightSums {
  int64_t groups, columns;
  explicit WeightSums(const GatedNormShape& s)
      : groups(s.shared ? s.rows * s.groups : s.rows), columns(s.shared ? s.width : s.groups * s.width) {}
};

}  // namespace

void gated_norm_forward(const GatedNormShape& s, void* y, float* rstd, const void* x, const void* gate,
                        const float* weight, const float* means) {
  require_gated_norm(s, means, "gated_norm_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormForward);
  parallel_ranges(s.rows, rows_per_task(s.groups * s.width), [&](int64_t begin, int64_t end) {
    kernel(s, y, rstd, x, gate, weight, means, begin, end);
  });
}

void gated_norm_backward_input(const GatedNormShape& s, void* dx, void* dgate, const void* dy, const void* x,
                               const void* gate, const float* rstd, const float* weight, const float* means) {
  require_gated_norm(s, means, "gated_norm_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormBackward);
  parallel_ranges(s.rows, rows_per_task(s.groups * s.width), [&](int64_t begin, int64_t end) {
    kernel(s, dx, dgate, dy, x, gate, rstd, weight, means, begin, end);
  });
}

void gated_norm_means(const GatedNormShape& s, int64_t whole, float* means, const void* x, const void* gate,
                      const void* dy, const float* weight) {
  require_gated_norm(s, means, "gated_norm_means");
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormMeans);
  parallel_ranges(s.rows, rows_per_task(s.width), [&](int64_t begin, int64_t end) {
    kernel(s, whole, means, x, gate, dy, weight, begin, end);
  });
}

int64_t gated_norm_weight_scratch_bytes(const GatedNormShape& s) {
  const WeightSums sums(s);
  return row_blocks_scratch_bytes(sums.groups, sums.columns);
}

void gated_norm_backward_weight(const GatedNormShape& s, float* dw, const void* dy, const void* x,
                                const void* gate, const float* rstd, bool accumulate, void* scratch) {
  require_gated_norm(s, nullptr, "gated_norm_backward_weight");
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormWeight);
  auto* const partials = static_cast<float*>(scratch);
  const WeightSums sums(s);
  const RowBlocks cut = row_blocks(sums.groups);
  const int64_t apart = s.shared ? 1 : s.groups;  // groups with different weights
  parallel_for(cut.blocks * apart, [&](int64_t i) {
    const int64_t block = i / apart, group = i % apart, begin = block * cut.rows_per_block;
    kernel(s, partials + block * sums.columns + group * s.width, dy, x, gate, rstd, group, apart, begin,
           std::min(sums.groups, begin + cut.rows_per_block));
  });
  combine_partial_rows(dw, partials, cut.blocks, sums.columns, accumulate);
}

}  // namespace strata::cpu
#endif
