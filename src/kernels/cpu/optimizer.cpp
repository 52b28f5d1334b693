#include "kernels/cpu/optimizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/weight_encoding.h"
#include "tensor/arena.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/simd-inl.h"

#ifndef STRATA_KERNELS_CPU_ADAMW_FACTORS_
#define STRATA_KERNELS_CPU_ADAMW_FACTORS_
namespace strata::cpu {
// The scalars of one update in the form the loops need.
struct AdamWFactors {
  float grad_scale, one_minus_beta1, beta2, one_minus_beta2, inverse_sqrt_correction2, eps, keep, step;
};
struct AdoptFactors {
  float grad_scale, one_minus_beta1, beta2, one_minus_beta2, eps, most, keep, step;
};
struct LionFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, step;
};
}  // namespace strata::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The results of multiplying numbers below 2^32.
template <typename V>
HWY_INLINE V product_of_words(V a, V b) {
  const hn::DFromV<V> du;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(du, hn::GetLane(a) * hn::GetLane(b));
#else
  const hn::Repartition<uint32_t, decltype(du)> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, b));
#endif
}

template <bool kDigests>
HWY_INLINE void sum_of_squares(const float* x, int64_t n, double* out, uint64_t* digest) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToUnsigned<decltype(dd)> du;
  const hn::RebindToUnsigned<decltype(df)> dw;
  const auto step = static_cast<int64_t>(hn::Lanes(dd));
  auto a = hn::Zero(dd), b = hn::Zero(dd), c = hn::Zero(dd), d = hn::Zero(dd);
  auto words_a = hn::Zero(du), words_b = hn::Zero(du);
  // 2i + 1 of the next words.
  auto odd = hn::Add(hn::ShiftLeft<1>(hn::Iota(du, 0)), hn::Set(du, 1));
  const auto next = hn::Set(du, 2 * static_cast<uint64_t>(step));
  const auto add_words = [&](hn::Vec<decltype(du)>& words, int64_t i) HWY_ATTR {
    const auto bits = hn::PromoteTo(du, hn::BitCast(dw, hn::LoadU(df, x + i)));
    words = hn::Add(words, product_of_words(bits, odd));
    odd = hn::Add(odd, next);
  };
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    const auto xa = hn::PromoteTo(dd, hn::LoadU(df, x + i));
    const auto xb = hn::PromoteTo(dd, hn::LoadU(df, x + i + step));
    const auto xc = hn::PromoteTo(dd, hn::LoadU(df, x + i + 2 * step));
    const auto xd = hn::PromoteTo(dd, hn::LoadU(df, x + i + 3 * step));
    a = hn::MulAdd(xa, xa, a);
    b = hn::MulAdd(xb, xb, b);
    c = hn::MulAdd(xc, xc, c);
    d = hn::MulAdd(xd, xd, d);
    if constexpr (kDigests) {
      add_words(words_a, i);
      add_words(words_b, i + step);
      add_words(words_a, i + 2 * step);
      add_words(words_b, i + 3 * step);
    }
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(a, b), hn::Add(c, d))));
  uint64_t words = kDigests ? hn::GetLane(hn::SumOfLanes(du, hn::Add(words_a, words_b))) : 0;
  for (; i < n; ++i) {
    sum += double{x[i]} * double{x[i]};
    if constexpr (kDigests) {
      uint32_t bits = 0;
      std::memcpy(&bits, x + i, sizeof bits);
      words += bits * (2 * static_cast<uint64_t>(i) + 1);
    }
  }
  *out = sum;
  if constexpr (kDigests) *digest = words;
}

void SumOfSquares(const float* x, int64_t n, double* out) {
  sum_of_squares<false>(x, n, out, nullptr);
}

void SquaresAndDigest(const float* x, int64_t n, double* out, uint64_t* digest) {
  sum_of_squares<true>(x, n, out, digest);
}

void ScaleRow(const float* x, float factor, int64_t n, float* out) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), by), d, out + i);
  for (; i < n; ++i) out[i] = x[i] * factor;
}

void AdamW(const AdamWArrays& to, const AdamWFactors& f, int64_t n) {
  const Vector scale = constant(f.grad_scale), share1 = constant(f.one_minus_beta1),
               beta2 = constant(f.beta2);
  const Vector share2 = constant(f.one_minus_beta2), correction2 = constant(f.inverse_sqrt_correction2);
  const Vector eps = constant(f.eps), keep_p = constant(f.keep), step = constant(f.step);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(to.grad + i, span), scale);
    const Vector old_m = load(to.m + i, span);
    const Vector new_m = hn::MulAdd(share1, hn::Sub(g, old_m), old_m);
    const Vector new_v = hn::MulAdd(hn::Mul(share2, g), g, hn::Mul(beta2, load(to.v + i, span)));
    const Vector denominator = hn::MulAdd(hn::Sqrt(new_v), correction2, eps);
    const Vector decayed = hn::Mul(load(to.master + i, span), keep_p);
    store(to.m + i, new_m, span);
    store(to.v + i, new_v, span);
    store(to.master + i, hn::NegMulAdd(step, hn::Div(new_m, denominator), decayed), span);
  });
}

void AdoptFirst(const AdamWArrays& to, float grad_scale, int64_t n) {
  const Vector scale = constant(grad_scale);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(to.grad + i, span), scale);
    store(to.v + i, hn::Mul(g, g), span);
  });
}

void Adopt(const AdamWArrays& to, const AdoptFactors& f, int64_t n) {
  const Vector scale = constant(f.grad_scale), share1 = constant(f.one_minus_beta1);
  const Vector beta2 = constant(f.beta2), share2 = constant(f.one_minus_beta2), eps = constant(f.eps);
  const Vector most = constant(f.most), least = constant(-f.most);
  const Vector keep_p = constant(f.keep), step = constant(f.step);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(to.grad + i, span), scale);
    const Vector old_m = load(to.m + i, span), old_v = load(to.v + i, span);
    const Vector normed = hn::Clamp(hn::Div(g, hn::Max(hn::Sqrt(old_v), eps)), least, most);
    const Vector new_m = hn::MulAdd(share1, hn::Sub(normed, old_m), old_m);
    store(to.m + i, new_m, span);
    store(to.v + i, hn::MulAdd(hn::Mul(share2, g), g, hn::Mul(beta2, old_v)), span);
    store(to.master + i, hn::NegMulAdd(step, new_m, hn::Mul(load(to.master + i, span), keep_p)), span);
  });
}

void Lion(float* p, float* m, const float* grad, const LionFactors& f, int64_t n) {
  const Vector scale = constant(f.grad_scale), keep_p = constant(f.keep), step = constant(f.step);
  const Vector beta1 = constant(f.beta1), share1 = constant(f.one_minus_beta1);
  const Vector beta2 = constant(f.beta2), share2 = constant(f.one_minus_beta2), one = constant(1);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + i, span), scale), old_m = load(m + i, span);
    const Vector mixed = hn::MulAdd(beta1, old_m, hn::Mul(share1, g));
    const Vector sign = hn::IfThenElseZero(hn::Ne(mixed, zero()), hn::CopySign(one, mixed));
    store(p + i, hn::NegMulAdd(step, sign, hn::Mul(load(p + i, span), keep_p)), span);
    store(m + i, hn::MulAdd(beta2, old_m, hn::Mul(share2, g)), span);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(SquaresAndDigest);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AdamW);
HWY_EXPORT(AdoptFirst);
HWY_EXPORT(Adopt);
HWY_EXPORT(Lion);

namespace {

// Rows that one thread takes together.
int64_t rows_at_once(int64_t columns) {
  return std::max<int64_t>(1, kNormBlock / std::max<int64_t>(1, columns));
}

}  // namespace

void sum_of_squares_partials(const float* x, int64_t n, double* partials) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumOfSquares);
  parallel_ranges(n, kNormBlock, [&](int64_t begin, int64_t end) {
    kernel(x + begin, end - begin, partials + begin / kNormBlock);
  });
}

void row_squares(const float* x, int64_t rows, int64_t columns, double* squares) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumOfSquares);
  parallel_ranges(rows, rows_at_once(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) kernel(x + row * columns, columns, squares + row);
  });
}

void scale_rows(const float* x, int64_t rows, int64_t columns, FunctionRef<float(int64_t)> factor,
                float* out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRow);
  parallel_ranges(rows, rows_at_once(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float by = factor(row);
      if (by == 1 && x == out) continue;
      kernel(x + row * columns, by, columns, out + row * columns);
    }
  });
}

void squares_and_digests(const float* x, int64_t n, double* partials, uint64_t* digests) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SquaresAndDigest);
  parallel_ranges(n, kNormBlock, [&](int64_t begin, int64_t end) {
    kernel(x + begin, end - begin, partials + begin / kNormBlock, digests + begin / kNormBlock);
  });
}

void reduce_sum(const double* partials, int64_t n, double* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += partials[i];
  *out = sum;
}

namespace {

constexpr int64_t kUpdateChunk = 16384;  // elements

AdamWFactors adamw_factors(const UpdateScalars& s, const AdamWConstants& c) {
  const double rate = double{s.lr} * double{c.lr_scale};
  return {
      .grad_scale = s.grad_scale,
      .one_minus_beta1 = static_cast<float>(1 - c.beta1),
      .beta2 = static_cast<float>(c.beta2),
      .one_minus_beta2 = static_cast<float>(1 - c.beta2),
      .inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(double{bias_correction(c.beta2, s)})),
      .eps = c.eps,
      .keep = static_cast<float>(1 - rate * double{c.weight_decay}),
      .step = static_cast<float>(rate / double{bias_correction(c.beta1, s)}),
  };
}

AdamWArrays from(const AdamWArrays& arrays, int64_t at) {
  return {arrays.master + at, arrays.m + at, arrays.v != nullptr ? arrays.v + at : nullptr, arrays.grad + at};
}

void update_chunks(int64_t n, const AdamWArrays& arrays, UpdateRange update) {
  parallel_ranges(n, kUpdateChunk,
                  [&](int64_t begin, int64_t end) { update(from(arrays, begin), end - begin); });
}

}  // namespace

void with_adamw(const UpdateScalars& scalars, const AdamWConstants& constants, UseUpdate use) {
  if (scalars.skip != 0) return;
  const AdamWFactors factors = adamw_factors(scalars, constants);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW);
  use([&](const AdamWArrays& arrays, int64_t n) { kernel(arrays, factors, n); });
}

void adamw_update(int64_t n, const AdamWArrays& arrays, const UpdateScalars* scalars,
                  const AdamWConstants& constants) {
  with_adamw(*scalars, constants, [&](UpdateRange update) { update_chunks(n, arrays, update); });
}

void adamw_update_encoded(int64_t rows, int64_t columns, const AdamWArrays& arrays,
                          const UpdateScalars* scalars, const AdamWConstants& constants,
                          std::span<const WeightEncoding> encodings, std::byte* const* places) {
  if (scalars->skip != 0) return;
  const AdamWFactors factors = adamw_factors(*scalars, constants);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW);
  const int64_t chunk = align_up(kUpdateChunk / std::max<int64_t>(columns, 1) + 1, kEncodedRows);
  parallel_ranges(rows, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kEncodedRows) {
      const int64_t last = std::min(row + kEncodedRows, end);
      kernel(from(arrays, row * columns), factors, (last - row) * columns);
      for (size_t i = 0; i < encodings.size(); ++i)
        encode_rows(encodings[i], reinterpret_cast<BF16*>(places[i]), arrays.master, row, last);
    }
  });
}

void with_adopt(const UpdateScalars& s, const AdamWConstants& c, UseUpdate use) {
  if (s.skip != 0) return;
  const double rate = double{s.lr} * double{c.lr_scale};
  const AdoptFactors factors{.grad_scale = s.grad_scale,
                             .one_minus_beta1 = static_cast<float>(1 - c.beta1),
                             .beta2 = static_cast<float>(c.beta2),
                             .one_minus_beta2 = static_cast<float>(1 - c.beta2),
                             .eps = c.eps,
                             .most = static_cast<float>(std::pow(static_cast<double>(s.update - 1), 0.25)),
                             .keep = static_cast<float>(1 - rate * double{c.weight_decay}),
                             .step = static_cast<float>(rate)};
  const auto first = HWY_DYNAMIC_DISPATCH(AdoptFirst);
  const auto later = HWY_DYNAMIC_DISPATCH(Adopt);
  use([&](const AdamWArrays& arrays, int64_t n) {
    if (s.update <= 1) {
      first(arrays, s.grad_scale, n);
    } else {
      later(arrays, factors, n);
    }
  });
}

void adopt_update(int64_t n, const AdamWArrays& arrays, const UpdateScalars* scalars,
                  const AdamWConstants& constants) {
  with_adopt(*scalars, constants, [&](UpdateRange update) { update_chunks(n, arrays, update); });
}

void router_bias_update(int64_t experts, float* bias, const int64_t* loads, const UpdateScalars* scalars,
                        double rate) {
  if (scalars->skip != 0) return;
  int64_t all = 0;
  for (int64_t e = 0; e < experts; ++e) all += loads[e];
  // In integers, since the mean may be fractional.
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t below = all - loads[e] * experts;
    bias[e] += static_cast<float>(below > 0 ? rate : below < 0 ? -rate : 0);
  }
}

void with_lion(const UpdateScalars& s, const LionConstants& c, UseUpdate use) {
  if (s.skip != 0) return;
  const double rate = double{s.lr} * double{c.lr_scale};
  const LionFactors factors{.grad_scale = s.grad_scale,
                            .beta1 = static_cast<float>(c.beta1),
                            .one_minus_beta1 = static_cast<float>(1 - c.beta1),
                            .beta2 = static_cast<float>(c.beta2),
                            .one_minus_beta2 = static_cast<float>(1 - c.beta2),
                            .keep = static_cast<float>(1 - rate * double{c.weight_decay}),
                            .step = static_cast<float>(rate)};
  const auto kernel = HWY_DYNAMIC_DISPATCH(Lion);
  use([&](const AdamWArrays& arrays, int64_t n) {
    kernel(arrays.master, arrays.m, arrays.grad, factors, n);
  });
}

void lion_update(int64_t n, float* master, float* m, const float* grad, const UpdateScalars* scalars,
                 const LionConstants& constants) {
  with_lion(*scalars, constants, [&](UpdateRange update) {
    update_chunks(n, {master, m, nullptr, grad}, update);
  });
}

}  // namespace strata::cpu
#endif
