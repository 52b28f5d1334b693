#include "kernels/cpu/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax_loss.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace simd = strata::cpu::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

float RowMax(const float* row, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  V max0 = hn::Set(d, kLowest);
  V max1 = max0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = hn::Max(max0, hn::LoadU(d, row + i));
    max1 = hn::Max(max1, hn::LoadU(d, row + i + lanes));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
  for (; i < n; ++i) result = std::max(result, row[i]);
  return result;
}

// exp(x - max); NaN is preserved, so that a diverged run shows in its loss.
HWY_INLINE V ExpBelow(V x, V max) {
  const F32 d;
  const V shifted = hn::Sub(x, max);
  return hn::IfThenElse(hn::IsNaN(shifted), shifted, hn::Exp(d, shifted));
}

// The sum of exp(row - max); kStore also writes the exponentials to the row.
template <bool kStore>
float RowExpSum(float* row, int64_t n, float max_value) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V max = hn::Set(d, max_value);
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V e0 = ExpBelow(hn::LoadU(d, row + i), max);
    const V e1 = ExpBelow(hn::LoadU(d, row + i + lanes), max);
    if constexpr (kStore) {
      hn::StoreU(e0, d, row + i);
      hn::StoreU(e1, d, row + i + lanes);
    }
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  float result = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) {
    const float e = hn::GetLane(ExpBelow(hn::Set(d, row[i]), max));
    if constexpr (kStore) row[i] = e;
    result += e;
  }
  return result;
}

// row[i] = body(row[i]) in whole vectors, then lane by lane.
template <typename Body>
HWY_INLINE void MapRow(float* row, int64_t n, const Body& body) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(body(hn::LoadU(d, row + i)), d, row + i);
  for (; i < n; ++i) row[i] = hn::GetLane(body(hn::Set(d, row[i])));
}

void CapRow(float* row, int64_t n, float cap) {
  const F32 d;
  const V c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  MapRow(row, n, [&](V x) HWY_ATTR { return hn::Mul(c, hn::Tanh(d, hn::Mul(x, inverse))); });
}

// 1 - tanh², where tanh = l / cap: the slope of the cap at a capped logit.
HWY_INLINE V CapSlope(V l, float cap) {
  const F32 d;
  const V bend = hn::Mul(l, hn::Set(d, 1.0f / cap));
  return hn::NegMulAdd(bend, bend, hn::Set(d, 1.0f));
}

double Loss(float* logits, int64_t valid, int32_t target, float cap) {
  if (cap > 0) CapRow(logits, valid, cap);
  const float max = RowMax(logits, valid);
  const double sum = RowExpSum<false>(logits, valid, max);
  return std::log(sum) + static_cast<double>(max) - static_cast<double>(logits[target]);
}

bool IsGreatest(const float* logits, int64_t valid, int32_t target) {
  return RowMax(logits, valid) == logits[target];
}

RowStatistics Statistics(float* logits, int64_t valid, int64_t target, float cap) {
  if (cap > 0) CapRow(logits, valid, cap);
  const float max = RowMax(logits, valid);
  const float target_logit = target >= 0 ? logits[target] : -std::numeric_limits<float>::infinity();
  return {max, RowExpSum<false>(logits, valid, max), target_logit};
}

// row = exp(row - max) times the cap's slope.
void SlopedExponentials(float* row, int64_t n, float max_value, float cap) {
  const V max = hn::Set(F32(), max_value);
  MapRow(row, n, [&](V l) HWY_ATTR { return hn::Mul(ExpBelow(l, max), CapSlope(l, cap)); });
}

float SlopeAt(float logit, float cap) {
  return cap > 0 ? hn::GetLane(CapSlope(hn::Set(F32(), logit), cap)) : 1.0f;
}

// gradient = exponentials · factor, less scale · slope at the target (unless it is -1). Returns the value at
// the target. Never inlined, so that every form of the loss rounds alike.
HWY_NOINLINE float ScaleRow(const float* exponentials, void* gradient, DType dtype, int64_t valid,
                            int64_t vocab, int64_t target, float factor, float scale, float slope) {
  const float at_target = target >= 0 ? exponentials[target] * factor - scale * slope : 0.0f;
  const V factors = hn::Set(F32(), factor);
  const auto scaled = [&](auto* to) HWY_ATTR {
    simd::for_vectors(valid, [&](int64_t i, auto span) HWY_ATTR {
      simd::store(to + i, hn::Mul(simd::load(exponentials + i, span), factors), span);
    });
    using T = std::remove_reference_t<decltype(*to)>;
    if (target >= 0) to[target] = T(at_target);
    std::memset(static_cast<void*>(to + valid), 0, static_cast<size_t>(vocab - valid) * sizeof(T));
  };
  if (dtype == DType::kF32) {
    scaled(static_cast<float*>(gradient));
  } else if (dtype == DType::kBF16) {
    scaled(static_cast<BF16*>(gradient));
  } else {
    scaled(static_cast<F16*>(gradient));
  }
  return at_target;
}

double Gradient(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab, int32_t target,
                float scale, float cap) {
  if (cap > 0) CapRow(logits, valid, cap);
  const float target_logit = logits[target];
  const float max = RowMax(logits, valid);
  float sum = 0;
  if (cap > 0) {
    // The exponentials are computed twice: the slope needs the logits that they overwrite.
    sum = RowExpSum<false>(logits, valid, max);
    SlopedExponentials(logits, valid, max, cap);
  } else {
    sum = RowExpSum<true>(logits, valid, max);
  }
  ScaleRow(logits, gradient, dtype, valid, vocab, target, scale / sum, scale, SlopeAt(target_logit, cap));
  return std::log(static_cast<double>(sum)) + static_cast<double>(max) - static_cast<double>(target_logit);
}

void GradientOfStatistics(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                          int64_t target, const StatisticsGradient& given, float cap) {
  if (cap > 0) CapRow(logits, valid, cap);
  const float slope = target >= 0 ? SlopeAt(logits[target], cap) : 1.0f;
  const int64_t greatest =
      given.of_maximum != 0 ? std::max_element(logits, logits + valid) - logits : int64_t{-1};
  float to_greatest = greatest >= 0 ? given.of_maximum * SlopeAt(logits[greatest], cap) : 0.0f;
  if (cap > 0) {
    SlopedExponentials(logits, valid, given.maximum, cap);
  } else {
    const V max = hn::Set(F32(), given.maximum);
    MapRow(logits, valid, [&](V l) HWY_ATTR { return ExpBelow(l, max); });
  }
  if (greatest >= 0 && greatest != target) to_greatest += logits[greatest] * given.of_sum;
  const float at_target = ScaleRow(logits, gradient, dtype, valid, vocab, target, given.of_sum,
                                   target >= 0 ? -given.of_target : 0.0f, slope);
  if (greatest < 0) return;
  if (greatest == target) to_greatest += at_target;
  if (dtype == DType::kF32) {
    static_cast<float*>(gradient)[greatest] = to_greatest;
  } else if (dtype == DType::kBF16) {
    static_cast<BF16*>(gradient)[greatest] = BF16(to_greatest);
  } else {
    static_cast<F16*>(gradient)[greatest] = F16(to_greatest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Loss);
HWY_EXPORT(IsGreatest);
HWY_EXPORT(Gradient);
HWY_EXPORT(CapRow);
HWY_EXPORT(Statistics);
HWY_EXPORT(GradientOfStatistics);

void cap_row(float* row, int64_t n, float softcap) {
  HWY_DYNAMIC_DISPATCH(CapRow)(row, n, softcap);
}

double cross_entropy_row(float* logits, int64_t valid, int32_t target, float softcap) {
  return target < 0 ? 0.0 : HWY_DYNAMIC_DISPATCH(Loss)(logits, valid, target, softcap);
}

RowStatistics row_statistics(float* logits, int64_t valid, int64_t target, float softcap) {
  return HWY_DYNAMIC_DISPATCH(Statistics)(logits, valid, target, softcap);
}

bool is_greatest(const float* logits, int64_t valid, int32_t target) {
  return HWY_DYNAMIC_DISPATCH(IsGreatest)(logits, valid, target);
}

double cross_entropy_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                                  int32_t target, float scale, float softcap) {
  if (target < 0) {
    std::memset(gradient, 0, static_cast<size_t>(vocab * size_of(dtype)));
    return 0.0;
  }
  return HWY_DYNAMIC_DISPATCH(Gradient)(logits, gradient, dtype, valid, vocab, target, scale, softcap);
}

void statistics_gradient_row(float* logits, void* gradient, DType dtype, int64_t valid, int64_t vocab,
                             int64_t target, const StatisticsGradient& given, float softcap) {
  if (valid == 0) {
    std::memset(gradient, 0, static_cast<size_t>(vocab * size_of(dtype)));
    return;
  }
  HWY_DYNAMIC_DISPATCH(GradientOfStatistics)(logits, gradient, dtype, valid, vocab, target, given, softcap);
}

void sum_losses(int64_t tokens, const double* losses, const int32_t* targets, bool accumulate,
                const LossSums& to) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < tokens; ++i) {
    sum += losses[i];
    count += targets[i] >= 0 ? 1 : 0;
    if (to.of_tokens != nullptr) to.of_tokens[i] = static_cast<float>(losses[i]);
  }
  *to.sum = sum + (accumulate ? *to.sum : 0.0);
  *to.count = count + (accumulate ? *to.count : 0);
}

}  // namespace strata::cpu::detail
#endif
