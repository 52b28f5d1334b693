#include "kernels/cpu/adamw8bit.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw8bit.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/simd-inl.h"

#ifndef STRATA_KERNELS_CPU_ADAMW8BIT_FACTORS_
#define STRATA_KERNELS_CPU_ADAMW8BIT_FACTORS_
namespace strata::cpu {
// The scalars of one update as the loop needs them.
struct AdamW8BitFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_sqrt_correction2, eps, keep, step;
};
}  // namespace strata::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<uint8_t, F32>;  // as many lanes as F32

// The values of codes[0, lanes).
HWY_INLINE Vector values_of(const DynamicMap& map, const uint8_t* codes) {
  return hn::GatherIndex(F32(), map.values.data(), hn::PromoteTo(I32(), hn::LoadU(U8(), codes)));
}

// Codes and scale of one whole block; `largest` holds the largest magnitudes of its lanes.
HWY_INLINE void quantize_block(const DynamicMap& map, const float* x, Vector largest, uint8_t* codes,
                               float* scale) {
  const I32 di;
  const float most = hn::GetLane(hn::MaxOfLanes(F32(), largest));
  // A block of zeros: the least number that is not flushed to zero, so that their codes are those of zero.
  const Vector inverse = constant(1.0f / std::max(most, std::numeric_limits<float>::min()));
  const auto first = hn::Set(di, map.first_bits), one = hn::BitCast(di, constant(1.0f));
  const auto base = hn::Set(di, map.first_bits >> map.shift), offset = hn::Set(di, map.sign_offset);
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes()) {
    const Vector share = hn::Mul(hn::LoadU(F32(), x + i), inverse);
    // As whole numbers, so that a NaN stays within the table.
    const auto bits = hn::Min(hn::Max(hn::BitCast(di, hn::Abs(share)), first), one);
    const auto negative = hn::BroadcastSignBit(hn::BitCast(di, share));
    const auto at = hn::Add(hn::Sub(hn::ShiftRightSame(bits, map.shift), base), hn::And(negative, offset));
    const auto low = hn::GatherIndex(di, map.code.data(), at);
    const auto above = hn::Gt(share, hn::GatherIndex(F32(), map.border.data(), at));
    // A lane of a true mask is -1.
    const auto code = hn::Sub(low, hn::VecFromMask(di, hn::RebindMask(di, above)));
    hn::StoreU(hn::DemoteTo(U8(), code), U8(), codes + i);
  }
  *scale = most;
}

void QuantizeBlock(const DynamicMap& map, const float* x, uint8_t* codes, float* scale) {
  Vector largest = zero();
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes())
    largest = hn::Max(largest, hn::Abs(hn::LoadU(F32(), x + i)));
  quantize_block(map, x, largest, codes, scale);
}

void AdamW8BitBlock(float* p, const Moments8Bit& moments, const float* grad, const AdamW8BitFactors& f) {
  const DynamicMap& m_map = signed_dynamic_map();
  const DynamicMap& v_map = unsigned_dynamic_map();
  HWY_ALIGN float new_m[kQuantizationBlock];
  HWY_ALIGN float new_v[kQuantizationBlock];
  const Vector scale = constant(f.grad_scale), eps = constant(f.eps), step = constant(f.step);
  const Vector beta1 = constant(f.beta1), share1 = constant(f.one_minus_beta1);
  const Vector beta2 = constant(f.beta2), share2 = constant(f.one_minus_beta2);
  const Vector correction2 = constant(f.inverse_sqrt_correction2), keep_p = constant(f.keep);
  const Vector m_scale = constant(*moments.m_scale), v_scale = constant(*moments.v_scale);
  Vector m_largest = zero(), v_largest = zero();
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes()) {
    const Vector g = hn::Mul(hn::LoadU(F32(), grad + i), scale);
    // Rounded where PyTorch rounds, so that codes rarely fall to another side.
    const Vector old_m = hn::Mul(values_of(m_map, moments.m + i), m_scale);
    const Vector old_v = hn::Mul(values_of(v_map, moments.v + i), v_scale);
    const Vector m = hn::MulAdd(share1, g, hn::Mul(beta1, old_m));
    const Vector v = hn::Add(hn::Mul(beta2, old_v), hn::Mul(hn::Mul(share2, g), g));
    const Vector denominator = hn::MulAdd(hn::Sqrt(v), correction2, eps);
    const Vector decayed = hn::Mul(hn::LoadU(F32(), p + i), keep_p);
    hn::StoreU(hn::NegMulAdd(step, hn::Div(m, denominator), decayed), F32(), p + i);
    hn::Store(m, F32(), new_m + i);
    hn::Store(v, F32(), new_v + i);
    m_largest = hn::Max(m_largest, hn::Abs(m));
    v_largest = hn::Max(v_largest, v);
  }
  quantize_block(m_map, new_m, m_largest, moments.m, moments.m_scale);
  quantize_block(v_map, new_v, v_largest, moments.v, moments.v_scale);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(QuantizeBlock);
HWY_EXPORT(AdamW8BitBlock);

namespace {

constexpr int64_t kBlocksOfATask = 32;

}  // namespace

void adamw8bit_update(int64_t n, float* master, const Moments8Bit& moments, const float* grad,
                      const UpdateScalars* scalars, float weight_decay, float lr_scale) {
  const UpdateScalars& s = *scalars;
  if (s.skip != 0) return;
  const double rate = double{s.lr} * double{lr_scale};
  const AdamW8BitFactors factors{
      .grad_scale = s.grad_scale,
      .beta1 = static_cast<float>(s.beta1),
      .one_minus_beta1 = static_cast<float>(1 - s.beta1),
      .beta2 = static_cast<float>(s.beta2),
      .one_minus_beta2 = static_cast<float>(1 - s.beta2),
      .inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(double{s.bias_correction2})),
      .eps = s.eps,
      .keep = static_cast<float>(1 - rate * double{weight_decay}),
      .step = static_cast<float>(rate / double{s.bias_correction1}),
  };
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW8BitBlock);
  parallel_ranges(quantization_blocks(n), kBlocksOfATask, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kQuantizationBlock, count = std::min(kQuantizationBlock, n - at);
      Moments8Bit own{moments.m + at, moments.m_scale + block, moments.v + at, moments.v_scale + block};
      if (count == kQuantizationBlock) {
        kernel(master + at, own, grad + at, factors);
        continue;
      }
      // The last block through copies that zeros fill up: they stay zero and enlarge no scale.
      float p[kQuantizationBlock] = {}, g[kQuantizationBlock] = {};
      uint8_t m[kQuantizationBlock] = {}, v[kQuantizationBlock] = {};
      std::copy_n(master + at, count, p);
      std::copy_n(grad + at, count, g);
      std::copy_n(own.m, count, m);
      std::copy_n(own.v, count, v);
      std::fill(m + count, m + kQuantizationBlock, uint8_t{127});  // the code of zero
      kernel(p, {m, own.m_scale, v, own.v_scale}, g, factors);
      std::copy_n(p, count, master + at);
      std::copy_n(m, count, own.m);
      std::copy_n(v, count, own.v);
    }
  });
}

void quantize_blocks(const DynamicMap& map, int64_t n, const float* x, uint8_t* codes, float* scales) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(QuantizeBlock);
  parallel_ranges(quantization_blocks(n), kBlocksOfATask, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kQuantizationBlock, count = std::min(kQuantizationBlock, n - at);
      float values[kQuantizationBlock] = {};
      uint8_t own[kQuantizationBlock];
      std::copy_n(x + at, count, values);
      kernel(map, values, own, scales + block);
      std::copy_n(own, count, codes + at);
    }
  });
}

}  // namespace strata::cpu
#endif
