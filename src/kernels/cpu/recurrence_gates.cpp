#include "kernels/cpu/recurrence_gates.h"

#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence_gates.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The step of a column, and its slope by the argument of the softplus.
template <bool kClamps>
HWY_INLINE Softplus step_of(const RecurrenceGatesShape& s, Vector x) {
  const Softplus step = softplus(x);
  if constexpr (!kClamps) return step;
  const Vector least = constant(s.least), greatest = constant(s.greatest);
  const auto inside = hn::And(hn::Ge(step.value, least), hn::Le(step.value, greatest));
  // The order of operands lets NaN through on x86.
  return {hn::Max(least, hn::Min(greatest, step.value)), hn::IfThenElseZero(inside, step.slope)};
}

// The gradient of the argument of the softplus, from those of the decay and, of state space, the step.
template <bool kClamps>
HWY_INLINE Vector argument_gradient(Vector rate, Vector slope, Vector dg, Vector dstep) {
  return hn::Mul(slope, kClamps ? hn::NegMulAdd(rate, dg, dstep) : hn::Neg(hn::Mul(rate, dg)));
}

// `rates`: exp(a_log) of each column.
template <typename T, bool kClamps>
void forward_rows(const RecurrenceGatesShape& s, float* g, float* beta, const void* a, const void* b,
                  const float* rates, const float* dt_bias, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(a) + row * s.width;
    float* const to = g + row * s.width;
    float* const steps = beta + row * s.heads;
    for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
      const Vector step = step_of<kClamps>(s, hn::Add(load(from + c, span), load(dt_bias + c, span))).value;
      store(to + c, hn::Neg(hn::Mul(load(rates + c, span), step)), span);
      if constexpr (kClamps) store(steps + c, step, span);
    });
    if constexpr (kClamps) continue;
    const T* const logits = static_cast<const T*>(b) + row * s.heads;
    const Vector scale = constant(s.beta_scale);
    for_vectors(s.heads, [&](int64_t h, auto span) HWY_ATTR {
      store(steps + h, logistic_times(scale, clamped(load(logits + h, span), 87.0f)), span);
    });
  }
}

template <typename T, bool kClamps>
void backward_rows(const RecurrenceGatesShape& s, void* da, void* db, const float* dg, const float* dbeta,
                   const void* a, const void* b, const float* rates, const float* dt_bias, int64_t begin,
                   int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(a) + row * s.width;
    T* const to = static_cast<T*>(da) + row * s.width;
    const float* const decays = dg + row * s.width;
    const float* const steps = dbeta + row * s.heads;
    for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
      const Vector slope = step_of<kClamps>(s, hn::Add(load(from + c, span), load(dt_bias + c, span))).slope;
      Vector dstep = zero();
      if constexpr (kClamps) dstep = load(steps + c, span);
      store(to + c, argument_gradient<kClamps>(load(rates + c, span), slope, load(decays + c, span), dstep),
            span);
    });
    if constexpr (kClamps) continue;
    const T* const logits = static_cast<const T*>(b) + row * s.heads;
    T* const to_logits = static_cast<T*>(db) + row * s.heads;
    const Vector scale = constant(s.beta_scale);
    for_vectors(s.heads, [&](int64_t h, auto span) HWY_ATTR {
      const Logistic at = logistic(clamped(load(logits + h, span), 87.0f));
      store(to_logits + h, hn::Mul(hn::Mul(load(steps + h, span), scale), hn::Mul(at.s, at.complement)),
            span);
    });
  }
}

// Sums over the rows [begin, end) of dg · step, and of the gradients of the softplus's arguments.
template <typename T, bool kClamps>
void weight_rows(const RecurrenceGatesShape& s, float* logs, float* biases, const float* dg,
                 const float* dbeta, const void* a, const float* rates, const float* dt_bias, int64_t begin,
                 int64_t end) {
  for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
    store(logs + c, zero(), span);
    store(biases + c, zero(), span);
  });
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(a) + row * s.width;
    const float* const decays = dg + row * s.width;
    for_vectors(s.width, [&](int64_t c, auto span) HWY_ATTR {
      const Softplus step = step_of<kClamps>(s, hn::Add(load(from + c, span), load(dt_bias + c, span)));
      const Vector decay = load(decays + c, span);
      Vector dstep = zero();
      if constexpr (kClamps) dstep = load(dbeta + row * s.heads + c, span);
      const Vector gradient = argument_gradient<kClamps>(load(rates + c, span), step.slope, decay, dstep);
      store(logs + c, hn::MulAdd(decay, step.value, load(logs + c, span)), span);
      store(biases + c, hn::Add(gradient, load(biases + c, span)), span);
    });
  }
}

void GatesForward(const RecurrenceGatesShape& s, float* g, float* beta, const void* a, const void* b,
                  const float* rates, const float* dt_bias, int64_t begin, int64_t end) {
  const auto rows =
      s.kind == RecurrenceKind::kDelta
          ? by_dtype(s.dtype, forward_rows<float, false>, forward_rows<BF16, false>, forward_rows<F16, false>)
          : by_dtype(s.dtype, forward_rows<float, true>, forward_rows<BF16, true>, forward_rows<F16, true>);
  rows(s, g, beta, a, b, rates, dt_bias, begin, end);
}
void GatesBackward(const RecurrenceGatesShape& s, void* da, void* db, const float* dg, const float* dbeta,
                   const void* a, const void* b, const float* rates, const float* dt_bias, int64_t begin,
                   int64_t end) {
  const auto rows = s.kind == RecurrenceKind::kDelta
                        ? by_dtype(s.dtype, backward_rows<float, false>, backward_rows<BF16, false>,
                                   backward_rows<F16, false>)
                        : by_dtype(s.dtype, backward_rows<float, true>, backward_rows<BF16, true>,
                                   backward_rows<F16, true>);
  rows(s, da, db, dg, dbeta, a, b, rates, dt_bias, begin, end);
}
void GatesWeight(const RecurrenceGatesShape& s, float* logs, float* biases, const float* dg,
                 const float* dbeta, const void* a, const float* rates, const float* dt_bias, int64_t begin,
                 int64_t end) {
  const auto rows =
      s.kind == RecurrenceKind::kDelta
          ? by_dtype(s.dtype, weight_rows<float, false>, weight_rows<BF16, false>, weight_rows<F16, false>)
          : by_dtype(s.dtype, weight_rows<float, true>, weight_rows<BF16, true>, weight_rows<F16, true>);
  rows(s, logs, biases, dg, dbeta, a, rates, dt_bias, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(GatesForward);
HWY_EXPORT(GatesBackward);
HWY_EXPORT(GatesWeight);

namespace {

// exp(a_log) for every column of a row, at the start of the scratch.
float* rates_of_columns(const RecurrenceGatesShape& s, const float* a_log, void* scratch) {
  auto* const rates = static_cast<float*>(scratch);
  const int64_t channels = s.width / s.heads;
  for (int64_t h = 0; h < s.heads; ++h) std::fill_n(rates + h * channels, channels, std::exp(a_log[h]));
  return rates;
}

}  // namespace

int64_t recurrence_gates_scratch_bytes(const RecurrenceGatesShape& s) {
  return s.width * int64_t{sizeof(float)};
}

void recurrence_gates_forward(const RecurrenceGatesShape& s, float* g, float* beta, const void* a,
                              const void* b, const RecurrenceGatesWeights& weights, void* scratch) {
  require_activation_dtype(s.dtype, "recurrence_gates_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatesForward);
  const float* const rates = rates_of_columns(s, weights.a_log, scratch);
  parallel_ranges(s.rows, rows_per_task(s.width), [&](int64_t begin, int64_t end) {
    kernel(s, g, beta, a, b, rates, weights.dt_bias, begin, end);
  });
}

void recurrence_gates_backward_input(const RecurrenceGatesShape& s, void* da, void* db, const float* dg,
                                     const float* dbeta, const void* a, const void* b,
                                     const RecurrenceGatesWeights& weights, void* scratch) {
  require_activation_dtype(s.dtype, "recurrence_gates_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatesBackward);
  const float* const rates = rates_of_columns(s, weights.a_log, scratch);
  parallel_ranges(s.rows, rows_per_task(s.width), [&](int64_t begin, int64_t end) {
    kernel(s, da, db, dg, dbeta, a, b, rates, weights.dt_bias, begin, end);
  });
}

// Scratch: the rates, a row of sums, and the partial rows; rows of sums are [logs | biases].
int64_t recurrence_gates_weight_scratch_bytes(const RecurrenceGatesShape& s) {
  return recurrence_gates_scratch_bytes(s) + 2 * s.width * int64_t{sizeof(float)} +
         row_blocks_scratch_bytes(s.rows, 2 * s.width);
}

void recurrence_gates_backward_weight(const RecurrenceGatesShape& s, float* da_log, float* ddt_bias,
                                      const float* dg, const float* dbeta, const void* a,
                                      const RecurrenceGatesWeights& weights, bool accumulate_a_log,
                                      bool accumulate_dt_bias, void* scratch) {
  require_activation_dtype(s.dtype, "recurrence_gates_backward_weight");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatesWeight);
  const float* const rates = rates_of_columns(s, weights.a_log, scratch);
  float* const sums = static_cast<float*>(scratch) + s.width;
  float* const partials = sums + 2 * s.width;
  const RowBlocks cut = row_blocks(s.rows);
  parallel_for(cut.blocks, [&](int64_t block) {
    const int64_t begin = block * cut.rows_per_block;
    float* const logs = partials + block * 2 * s.width;
    kernel(s, logs, logs + s.width, dg, dbeta, a, rates, weights.dt_bias, begin,
           std::min(s.rows, begin + cut.rows_per_block));
  });
  combine_partial_rows(sums, partials, cut.blocks, 2 * s.width, false);
  const int64_t channels = s.width / s.heads;
  for (int64_t h = 0; h < s.heads; ++h) {
    double sum = 0;
    for (int64_t c = h * channels; c < (h + 1) * channels; ++c) sum += static_cast<double>(sums[c]);
    da_log[h] = (accumulate_a_log ? da_log[h] : 0.0f) - rates[h * channels] * static_cast<float>(sum);
  }
  for (int64_t c = 0; c < s.width; ++c)
    ddt_bias[c] = (accumulate_dt_bias ? ddt_bias[c] : 0.0f) + sums[s.width + c];
}

}  // namespace strata::cpu
#endif
