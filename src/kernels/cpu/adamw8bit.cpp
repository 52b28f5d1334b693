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
// The scalars of one update in the form the loop needs.
struct AdamW8BitFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_sqrt_correction2, eps, keep, step;
};
// Largest magnitudes in a block or a part of it.
struct LargestMoments {
  float m, v;
};
}  // namespace strata::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<uint8_t, F32>;  // as many lanes as F32

// Decodes codes[0, lanes).
HWY_INLINE Vector values_of(const DynamicMap& map, const uint8_t* codes) {
  return hn::GatherIndex(F32(), map.values.data(), hn::PromoteTo(I32(), hn::LoadU(U8(), codes)));
}

// Quantizes one whole block whose largest magnitude is `most`.
HWY_INLINE void quantize_block(const DynamicMap& map, const float* x, float most, uint8_t* codes,
                               float* scale) {
  const I32 di;
  // In a block of zeros, divides by the least number that is not flushed to zero, so that the codes are those
  // of zero.
  const Vector inverse = constant(1.0f / std::max(most, std::numeric_limits<float>::min()));
  const auto first = hn::Set(di, map.first_bits), one = hn::BitCast(di, constant(1.0f));
  const auto base = hn::Set(di, map.first_bits >> map.shift), offset = hn::Set(di, map.sign_offset);
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes()) {
    const Vector share = hn::Mul(hn::LoadU(F32(), x + i), inverse);
    // Compared as integers, so that a NaN stays within the table.
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

HWY_INLINE float most_of(Vector largest) {
  return hn::GetLane(hn::MaxOfLanes(F32(), largest));
}

void QuantizeBlock(const DynamicMap& map, const float* x, uint8_t* codes, float* scale) {
  Vector largest = zero();
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes())
    largest = hn::Max(largest, hn::Abs(hn::LoadU(F32(), x + i)));
  quantize_block(map, x, most_of(largest), codes, scale);
}

// The new moments of a block's elements from `i` on. Rounds like PyTorch, so that codes rarely differ.
HWY_INLINE void new_moments(const Moments8Bit& moments, const float* grad, const AdamW8BitFactors& f,
                            int64_t i, Vector& m, Vector& v) {
  const Vector g = hn::Mul(hn::LoadU(F32(), grad + i), constant(f.grad_scale));
  const Vector old_m = hn::Mul(values_of(signed_dynamic_map(), moments.m + i), constant(*moments.m_scale));
  const Vector old_v = hn::Mul(values_of(unsigned_dynamic_map(), moments.v + i), constant(*moments.v_scale));
  m = hn::MulAdd(constant(f.one_minus_beta1), g, hn::Mul(constant(f.beta1), old_m));
  v = hn::Add(hn::Mul(constant(f.beta2), old_v), hn::Mul(hn::Mul(constant(f.one_minus_beta2), g), g));
}

void AdamW8BitLargest(const Moments8Bit& moments, const float* grad, const AdamW8BitFactors& f,
                      LargestMoments* largest) {
  Vector m_largest = zero(), v_largest = zero();
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes()) {
    Vector m, v;
    new_moments(moments, grad, f, i, m, v);
    m_largest = hn::Max(m_largest, hn::Abs(m));
    v_largest = hn::Max(v_largest, v);
  }
  *largest = {most_of(m_largest), most_of(v_largest)};
}

// `given`: the largest new moments of the whole block, if these elements are only a part of it; nullptr: use
// their own.
void AdamW8BitBlock(float* p, const Moments8Bit& moments, const float* grad, const AdamW8BitFactors& f,
                    const LargestMoments* given) {
  HWY_ALIGN float new_m[kQuantizationBlock];
  HWY_ALIGN float new_v[kQuantizationBlock];
  const Vector eps = constant(f.eps), step = constant(f.step);
  const Vector correction2 = constant(f.inverse_sqrt_correction2), keep_p = constant(f.keep);
  Vector m_largest = zero(), v_largest = zero();
  for (int64_t i = 0; i < kQuantizationBlock; i += lanes()) {
    Vector m, v;
    new_moments(moments, grad, f, i, m, v);
    const Vector denominator = hn::MulAdd(hn::Sqrt(v), correction2, eps);
    const Vector decayed = hn::Mul(hn::LoadU(F32(), p + i), keep_p);
    hn::StoreU(hn::NegMulAdd(step, hn::Div(m, denominator), decayed), F32(), p + i);
    hn::Store(m, F32(), new_m + i);
    hn::Store(v, F32(), new_v + i);
    m_largest = hn::Max(m_largest, hn::Abs(m));
    v_largest = hn::Max(v_largest, v);
  }
  const LargestMoments most =
      given != nullptr ? *given : LargestMoments{most_of(m_largest), most_of(v_largest)};
  quantize_block(signed_dynamic_map(), new_m, most.m, moments.m, moments.m_scale);
  quantize_block(unsigned_dynamic_map(), new_v, most.v, moments.v, moments.v_scale);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(QuantizeBlock);
HWY_EXPORT(AdamW8BitLargest);
HWY_EXPORT(AdamW8BitBlock);

namespace {

constexpr int64_t kBlocksOfATask = 32;
constexpr uint8_t kZeroOfM = 127, kZeroOfV = 0;  // codes

AdamW8BitFactors factors_of(const UpdateScalars& s, const AdamWConstants& c) {
  const double rate = double{s.lr} * double{c.lr_scale};
  return {
      .grad_scale = s.grad_scale,
      .beta1 = static_cast<float>(c.beta1),
      .one_minus_beta1 = static_cast<float>(1 - c.beta1),
      .beta2 = static_cast<float>(c.beta2),
      .one_minus_beta2 = static_cast<float>(1 - c.beta2),
      .inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(double{bias_correction(c.beta2, s)})),
      .eps = c.eps,
      .keep = static_cast<float>(1 - rate * double{c.weight_decay}),
      .step = static_cast<float>(rate / double{bias_correction(c.beta1, s)}),
  };
}

// A block that is not completely on this rank: a copy padded with zeros, which stay zero and enlarge no
// scale.
struct PartOfBlock {
  PartOfBlock() {
    std::fill(std::begin(m), std::end(m), kZeroOfM);
    std::fill(std::begin(v), std::end(v), kZeroOfV);
  }
  void take(int64_t place, int64_t count, const float* master, const Moments8Bit& from, const float* grad) {
    if (master != nullptr) std::copy_n(master, count, p + place);
    std::copy_n(grad, count, g + place);
    std::copy_n(from.m, count, m + place);
    std::copy_n(from.v, count, v + place);
  }
  void give(int64_t place, int64_t count, float* master, const Moments8Bit& to) const {
    std::copy_n(p + place, count, master);
    std::copy_n(m + place, count, to.m);
    std::copy_n(v + place, count, to.v);
  }
  float p[kQuantizationBlock] = {}, g[kQuantizationBlock] = {};
  uint8_t m[kQuantizationBlock], v[kQuantizationBlock];
};

// Calls each(at, place, count) for the ranges of a block within a run: `at` in memory, `place` in the block.
template <typename Each>
void for_each_range(const HeldRun& run, int64_t block, const Each& each) {
  const int64_t begin = block * kQuantizationBlock, end = begin + kQuantizationBlock;
  for (int64_t row = std::max(run.row, begin / run.columns);
       row < run.row + run.rows && row * run.columns < end; ++row) {
    const int64_t first = row * run.columns + run.first_column;
    const int64_t from = std::max(first, begin), to = std::min(first + run.width, end);
    if (from < to) each((run.at + row - run.row) * run.width + from - first, from - begin, to - from);
  }
}

// Calls each(block) for every block of which a run has elements, on several threads.
template <typename Each>
void for_each_block(const HeldRun& run, const Each& each) {
  if (run.rows == 0 || run.width == 0) return;
  const int64_t first = run.row * run.columns + run.first_column;
  const int64_t last = (run.row + run.rows - 1) * run.columns + run.first_column + run.width - 1;
  const int64_t first_block = first / kQuantizationBlock;
  parallel_ranges(last / kQuantizationBlock + 1 - first_block, kBlocksOfATask,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t block = begin; block < end; ++block) each(first_block + block);
                  });
}

Moments8Bit moments_from(const Moments8Bit& moments, int64_t at, float* m_scale, float* v_scale) {
  return {moments.m + at, m_scale, moments.v + at, v_scale};
}

}  // namespace

void adamw8bit_update(int64_t n, float* master, const Moments8Bit& moments, const float* grad,
                      const UpdateScalars* scalars, const AdamWConstants& constants) {
  if (scalars->skip != 0) return;
  const AdamW8BitFactors factors = factors_of(*scalars, constants);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW8BitBlock);
  parallel_ranges(quantization_blocks(n), kBlocksOfATask, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kQuantizationBlock, count = std::min(kQuantizationBlock, n - at);
      const Moments8Bit own = moments_from(moments, at, moments.m_scale + block, moments.v_scale + block);
      if (count == kQuantizationBlock) {
        kernel(master + at, own, grad + at, factors, nullptr);
        continue;
      }
      PartOfBlock part;
      part.take(0, count, master + at, own, grad + at);
      kernel(part.p, {part.m, own.m_scale, part.v, own.v_scale}, part.g, factors, nullptr);
      part.give(0, count, master + at, own);
    }
  });
}

void adamw8bit_largest(const HeldRun& run, const Moments8Bit& moments, const float* grad,
                       const UpdateScalars* scalars, const AdamWConstants& constants, float* m_largest,
                       float* v_largest) {
  if (scalars->skip != 0) return;
  const AdamW8BitFactors factors = factors_of(*scalars, constants);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW8BitLargest);
  for_each_block(run, [&](int64_t block) {
    PartOfBlock part;
    for_each_range(run, block, [&](int64_t at, int64_t place, int64_t count) {
      part.take(place, count, nullptr, moments_from(moments, at, nullptr, nullptr), grad + at);
    });
    LargestMoments largest{};
    kernel({part.m, moments.m_scale + block, part.v, moments.v_scale + block}, part.g, factors, &largest);
    m_largest[block] = std::max(m_largest[block], largest.m);
    v_largest[block] = std::max(v_largest[block], largest.v);
  });
}

void adamw8bit_update_run(const HeldRun& run, float* master, const Moments8Bit& moments, const float* grad,
                          const UpdateScalars* scalars, const AdamWConstants& constants,
                          const float* m_largest, const float* v_largest) {
  if (scalars->skip != 0) return;
  const AdamW8BitFactors factors = factors_of(*scalars, constants);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamW8BitBlock);
  for_each_block(run, [&](int64_t block) {
    PartOfBlock part;
    for_each_range(run, block, [&](int64_t at, int64_t place, int64_t count) {
      part.take(place, count, master + at, moments_from(moments, at, nullptr, nullptr), grad + at);
    });
    float m_scale = moments.m_scale[block], v_scale = moments.v_scale[block];
    const LargestMoments largest{m_largest[block], v_largest[block]};
    kernel(part.p, {part.m, &m_scale, part.v, &v_scale}, part.g, factors, &largest);
    for_each_range(run, block, [&](int64_t at, int64_t place, int64_t count) {
      part.give(place, count, master + at, moments_from(moments, at, nullptr, nullptr));
    });
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
