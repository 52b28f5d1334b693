#include <cstring>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/convert.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::simd::HWY_NAMESPACE {

template <typename To, typename From>
void ConvertTo(To* to, const From* from, int64_t n) {
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR { store(to + i, load(from + i, span), span); });
}
void Round(BF16* to, const float* from, int64_t n) {
  ConvertTo(to, from, n);
}
void Widen(float* to, const BF16* from, int64_t n) {
  ConvertTo(to, from, n);
}
void RoundF16(F16* to, const float* from, int64_t n) {
  ConvertTo(to, from, n);
}
void WidenF16(float* to, const F16* from, int64_t n) {
  ConvertTo(to, from, n);
}

}  // namespace strata::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
namespace simd {

HWY_EXPORT(Round);
HWY_EXPORT(Widen);
HWY_EXPORT(RoundF16);
HWY_EXPORT(WidenF16);

}  // namespace simd

namespace {

double load(const void* in, DType type, int64_t i) {
  switch (type) {
    case DType::kF32:
      return static_cast<const float*>(in)[i];
    case DType::kF64:
      return static_cast<const double*>(in)[i];
    case DType::kBF16:
      return static_cast<float>(static_cast<const BF16*>(in)[i]);
    case DType::kF16:
      return f16_to_float(static_cast<const uint16_t*>(in)[i]);
    default:
      throw InternalError("cannot convert from {}", name_of(type));
  }
}

template <DType kFrom, DType kTo>
void convert_loop(void* out, const void* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = load(in, kFrom, i);
    if constexpr (kTo == DType::kF32) static_cast<float*>(out)[i] = static_cast<float>(value);
    if constexpr (kTo == DType::kF64) static_cast<double*>(out)[i] = value;
    if constexpr (kTo == DType::kBF16) static_cast<BF16*>(out)[i] = BF16(static_cast<float>(value));
    if constexpr (kTo == DType::kF16)
      static_cast<uint16_t*>(out)[i] = float_to_f16(static_cast<float>(value));
  }
}

template <DType kFrom>
void convert_from(void* out, DType out_type, const void* in, int64_t n) {
  switch (out_type) {
    case DType::kF32:
      return convert_loop<kFrom, DType::kF32>(out, in, n);
    case DType::kF64:
      return convert_loop<kFrom, DType::kF64>(out, in, n);
    case DType::kBF16:
      return convert_loop<kFrom, DType::kBF16>(out, in, n);
    case DType::kF16:
      return convert_loop<kFrom, DType::kF16>(out, in, n);
    default:
      throw InternalError("cannot convert {} to {}", name_of(kFrom), name_of(out_type));
  }
}

}  // namespace

void convert(void* out, DType out_type, const void* in, DType in_type, int64_t n) {
  if (out_type == in_type) {
    if (n > 0) std::memcpy(out, in, static_cast<size_t>(bytes_of(in_type, n)));
    return;
  }
  // What training and checkpoints do all the time.
  using namespace simd;
  if (in_type == DType::kF32 && out_type == DType::kBF16)
    return HWY_DYNAMIC_DISPATCH(Round)(static_cast<BF16*>(out), static_cast<const float*>(in), n);
  if (in_type == DType::kBF16 && out_type == DType::kF32)
    return HWY_DYNAMIC_DISPATCH(Widen)(static_cast<float*>(out), static_cast<const BF16*>(in), n);
  if (in_type == DType::kF32 && out_type == DType::kF16)
    return HWY_DYNAMIC_DISPATCH(RoundF16)(static_cast<F16*>(out), static_cast<const float*>(in), n);
  if (in_type == DType::kF16 && out_type == DType::kF32)
    return HWY_DYNAMIC_DISPATCH(WidenF16)(static_cast<float*>(out), static_cast<const F16*>(in), n);
  switch (in_type) {
    case DType::kF32:
      return convert_from<DType::kF32>(out, out_type, in, n);
    case DType::kF64:
      return convert_from<DType::kF64>(out, out_type, in, n);
    case DType::kBF16:
      return convert_from<DType::kBF16>(out, out_type, in, n);
    case DType::kF16:
      return convert_from<DType::kF16>(out, out_type, in, n);
    default:
      throw InternalError("cannot convert {} to {}", name_of(in_type), name_of(out_type));
  }
}

}  // namespace strata
#endif
