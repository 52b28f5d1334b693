#include "kernels/cpu/stored_update.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "quantize/formats.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/stored_update.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"
#include "quantize/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

void Widen(const BF16* x, const BF16* rest, int64_t n, float* to) {
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector value = load(x + i, span);
    store(to + i, rest == nullptr ? value : hn::Add(value, load(rest + i, span)), span);
  });
}

void RoundNearest(const float* x, int64_t n, BF16* to, BF16* rest) {
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector value = load(x + i, span);
    const Vector rounded = store(to + i, value, span);
    if (rest != nullptr) store(rest + i, hn::Sub(value, rounded), span);
  });
}

void RoundStochastic(const float* x, int64_t n, BF16* to, const quantize::StochasticBits& bits,
                     int64_t first) {
  constexpr int64_t kAtOnce = 512;
  uint32_t buffer[kAtOnce + quantize::tiles::HWY_NAMESPACE::kRandomMargin];
  const U32 du;
  for (int64_t begin = 0; begin < n; begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, n - begin);
    const uint32_t* const words =
        quantize::tiles::HWY_NAMESPACE::random_words(bits, first + begin, count, buffer);
    for_vectors(count, [&](int64_t i, auto span) HWY_ATTR {
      const Vector value = load(x + begin + i, span);
      const auto word = hn::BitCast(du, load(reinterpret_cast<const float*>(words + i), span));
      const auto sum = hn::Add(hn::BitCast(du, value), hn::ShiftRight<16>(word));
      const auto cut = hn::BitCast(F32(), hn::And(sum, hn::Set(du, 0xffff0000u)));
      store(to + begin + i, hn::IfThenElse(hn::IsFinite(value), cut, value), span);
    });
  }
}

// codes · scale = x
float LargestOf(const float* x, int64_t n) {
  Vector largest = zero();
  for_vectors(n,
              [&](int64_t i, auto span) HWY_ATTR { largest = hn::Max(largest, hn::Abs(load(x + i, span))); });
  return hn::GetLane(hn::MaxOfLanes(F32(), largest));
}
void DivideBy(const float* x, float divisor, int64_t n, float* to) {
  const Vector by = constant(divisor);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR { store(to + i, hn::Div(load(x + i, span), by), span); });
}
void MultiplyBy(float factor, int64_t n, float* to) {
  const Vector by = constant(factor);
  for_vectors(n,
              [&](int64_t i, auto span) HWY_ATTR { store(to + i, hn::Mul(load(to + i, span), by), span); });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(Widen);
HWY_EXPORT(RoundNearest);
HWY_EXPORT(RoundStochastic);
HWY_EXPORT(LargestOf);
HWY_EXPORT(DivideBy);
HWY_EXPORT(MultiplyBy);

namespace {

constexpr int64_t kSlice = 1024;   // elements that are widened at a time: three arrays in the first cache
constexpr int64_t kChunk = 16384;  // of a thread
static_assert(kSlice % kScaledMoments == 0 && kChunk % kSlice == 0);

// Widened elements [at, at + n) of moments.
class Moments {
 public:
  Moments(const StoredMoments& of, int64_t at, int64_t n) : of_(of), at_(at), n_(n) {
    if (of.data == nullptr || of.dtype == DType::kF32) return;
    if (of.dtype == DType::kBF16) {
      HWY_DYNAMIC_DISPATCH(Widen)(static_cast<const BF16*>(of.data) + at, nullptr, n, wide_);
      return;
    }
    quantize::decode(quantize::Format::kE4M3, static_cast<const uint8_t*>(of.data) + at, n, wide_);
    each_block([&](int64_t i, int64_t count, float& scale) {
      HWY_DYNAMIC_DISPATCH(MultiplyBy)(scale, count, wide_ + i);
    });
  }

  float* wide() {
    if (of_.data == nullptr) return nullptr;
    return of_.dtype == DType::kF32 ? static_cast<float*>(of_.data) + at_ : wide_;
  }

  void put_back() {
    if (of_.data == nullptr || of_.dtype == DType::kF32) return;
    if (of_.dtype == DType::kBF16) {
      HWY_DYNAMIC_DISPATCH(RoundNearest)(wide_, n_, static_cast<BF16*>(of_.data) + at_, nullptr);
      return;
    }
    const float most = quantize::largest_of(quantize::Format::kE4M3);
    each_block([&](int64_t i, int64_t count, float& scale) {
      scale = std::max(HWY_DYNAMIC_DISPATCH(LargestOf)(wide_ + i, count), 1e-12f) / most;
      HWY_DYNAMIC_DISPATCH(DivideBy)(wide_ + i, scale, count, wide_ + i);
    });
    quantize::encode(quantize::Format::kE4M3, wide_, n_, static_cast<uint8_t*>(of_.data) + at_);
  }

 private:
  template <typename Each>
  void each_block(const Each& each) {
    for (int64_t i = 0; i < n_; i += kScaledMoments)
      each(i, std::min(kScaledMoments, n_ - i), of_.scales[(at_ + i) / kScaledMoments]);
  }

  const StoredMoments& of_;
  int64_t at_, n_;
  float wide_[kSlice];
};

class Weights {
 public:
  Weights(const StoredWeights& of, int64_t at, int64_t n) : of_(of), at_(at), n_(n) {
    if (of.dtype == DType::kF32) return;
    HWY_DYNAMIC_DISPATCH(Widen)
    (bits(at), of.compensation != nullptr ? of.compensation + at : nullptr, n, wide_);
  }

  float* wide() { return of_.dtype == DType::kF32 ? static_cast<float*>(of_.data) + at_ : wide_; }

  void put_back(PlaceOf place_of) {
    if (of_.dtype == DType::kF32) return;
    if (!of_.stochastic) {
      HWY_DYNAMIC_DISPATCH(RoundNearest)
      (wide_, n_, bits(at_), of_.compensation != nullptr ? of_.compensation + at_ : nullptr);
      return;
    }
    for (int64_t at = at_; at < at_ + n_;) {
      const PlacedElements run = place_of(at, at_ + n_);
      if (run.place < 0) {
        HWY_DYNAMIC_DISPATCH(RoundNearest)(wide_ + at - at_, run.count, bits(at), nullptr);
      } else {
        HWY_DYNAMIC_DISPATCH(RoundStochastic)
        (wide_ + at - at_, run.count, bits(at), {of_.key, of_.step}, run.place);
      }
      at += run.count;
    }
  }

 private:
  BF16* bits(int64_t at) const { return static_cast<BF16*>(of_.data) + at; }

  const StoredWeights& of_;
  int64_t at_, n_;
  float wide_[kSlice];
};

}  // namespace

void stored_update(int64_t n, const StoredWeights& weights, const StoredMoments& m, const StoredMoments& v,
                   const float* grad, FunctionRef<void(int64_t, const AdamWArrays&, int64_t)> update,
                   PlaceOf place_of) {
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kSlice) {
      const int64_t count = std::min(kSlice, end - at);
      Weights wide(weights, at, count);
      Moments wide_m(m, at, count), wide_v(v, at, count);
      update(at, {wide.wide(), wide_m.wide(), wide_v.wide(), grad + at}, count);
      wide_m.put_back();
      wide_v.put_back();
      wide.put_back(place_of);
    }
  });
}

void round_stochastic(const float* x, BF16* to, int64_t n, RandomKey key, uint32_t step, int64_t first) {
  HWY_DYNAMIC_DISPATCH(RoundStochastic)(x, n, to, {key, step}, first);
}

}  // namespace strata::cpu
#endif
