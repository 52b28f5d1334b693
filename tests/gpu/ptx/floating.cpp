// Floating-point arithmetic that the standard defines: add, sub, mul, fma, div, min, max and signs.
#include "ptx/floating.h"

#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {

namespace {

enum class Op { kAdd, kSubtract, kMultiply, kFma, kDivide };

constexpr uint8_t kFtz = 1;
constexpr uint8_t kSat = 2;
constexpr uint8_t kRelu = 4;

template <Op kOp, typename T>
inline T compute(T a, T b, T c) {
  switch (kOp) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kFma:
      return std::fma(a, b, c);
  }
}

template <Op kOp>
void run_f32(Warp& w, const Instruction& i, uint32_t mask) {
  if constexpr (kOp == Op::kFma) {
    each_lane(
        mask, [](float a, float b, float c) { return canonical(std::fma(a, b, c)); }, w.reg<float>(i.r[0]),
        w.reg<float>(i.r[1]), w.reg<float>(i.r[2]), w.reg<float>(i.r[3]));
  } else {
    each_lane(
        mask, [](float a, float b) { return canonical(compute<kOp, float>(a, b, 0)); }, w.reg<float>(i.r[0]),
        w.reg<float>(i.r[1]), w.reg<float>(i.r[2]));
  }
}

#if defined(__x86_64__)
// f32 fma with the processor's instruction instead of a call per lane.
__attribute__((target("avx2,fma"))) void run_f32_fma_avx2(Warp& w, const Instruction& i, uint32_t mask) {
  float* d = w.reg<float>(i.r[0]);
  const float* a = w.reg<float>(i.r[1]);
  const float* b = w.reg<float>(i.r[2]);
  const float* c = w.reg<float>(i.r[3]);
  if (mask == kAllLanes) {
    STRATA_INDEPENDENT_LANES
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const float value = __builtin_fmaf(a[lane], b[lane], c[lane]);
      d[lane] = value != value ? std::bit_cast<float>(kNan32) : value;
    }
    return;
  }
  for (; mask != 0; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    const float value = __builtin_fmaf(a[lane], b[lane], c[lane]);
    d[lane] = value != value ? std::bit_cast<float>(kNan32) : value;
  }
}
#endif

Handler plain_fma() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_f32_fma_avx2;
#endif
  return run_f32<Op::kFma>;
}

// The result in units of 2^-64, as if the exponent had no lower bound.
template <Op kOp>
inline float compute_scaled(float x, float y, float z) {
  constexpr float kScale = 0x1p64f;
  const bool both = kOp == Op::kAdd || kOp == Op::kSubtract;
  const bool first =
      both || kOp == Op::kDivide || std::fabs(x) < std::fabs(y);  // multiplication: the smaller factor
  const volatile float a = first ? x * kScale : x;
  const volatile float b = both || !first ? y * kScale : y;
  const volatile float c = z * kScale;
  const volatile float value = compute<kOp, float>(a, b, c);
  return value;
}

// Every rounding and option.
template <Op kOp>
void run_f32_any(Warp& w, const Instruction& i, uint32_t mask) {
  const RoundingScope scope(i.rounding);
  const bool ftz = (i.option & kFtz) != 0;
  float* d = w.reg<float>(i.r[0]);
  const float* a = w.reg<float>(i.r[1]);
  const float* b = w.reg<float>(i.r[2]);
  const float* c = kOp == Op::kFma ? w.reg<float>(i.r[3]) : b;
  for_lanes(mask, [&](unsigned lane) {
    const volatile float x = ftz ? flushed(a[lane]) : a[lane];
    const volatile float y = ftz ? flushed(b[lane]) : b[lane];
    const volatile float z = ftz ? flushed(c[lane]) : c[lane];
    const volatile float computed = compute<kOp, float>(x, y, z);
    float value = computed;
    if (ftz) {
      value = flushed(value);
      // Whether a result is tiny is decided after rounding with an unbounded exponent.
      if (std::fabs(value) == 0x1p-126f && std::fabs(compute_scaled<kOp>(x, y, z)) < 0x1p-62f)
        value = std::copysign(0.0f, value);
    }
    if ((i.option & kSat) != 0) value = saturated(value);
    if ((i.option & kRelu) != 0) value = value < 0 ? 0.0f : value;
    d[lane] = canonical(value);
  });
}

// The NaN that a GPU returns for NaN operands.
template <Op kOp>
inline double chosen_nan(double a, double b, double c, double value) {
  if (kOp == Op::kDivide && a != a) return quieted(a);
  if (b != b) return quieted(b);
  if (kOp == Op::kFma && c != c) return quieted(c);
  return a != a ? quieted(a) : value;
}

template <Op kOp>
void run_f64(Warp& w, const Instruction& i, uint32_t mask) {
  const RoundingScope scope(i.rounding);
  double* d = w.reg<double>(i.r[0]);
  const double* a = w.reg<double>(i.r[1]);
  const double* b = w.reg<double>(i.r[2]);
  const double* c = kOp == Op::kFma ? w.reg<double>(i.r[3]) : b;
  for_lanes(mask, [&](unsigned lane) {
    const volatile double x = a[lane], y = b[lane], z = c[lane];
    const volatile double value = compute<kOp, double>(x, y, z);
    d[lane] = value != value ? chosen_nan<kOp>(x, y, z, value) : value;
  });
}

// f16 and bf16, scalars or pairs.
template <Op kOp, bool kHalfType>
inline uint16_t compute16(uint16_t a, uint16_t b, uint16_t c, uint8_t option) {
  const auto value_of = [&](uint16_t bits) {
    const float value = kHalfType ? half_value(bits) : brain_value(bits);
    // Flushes denormals of the small format.
    const bool denormal = kHalfType ? (bits & 0x7c00) == 0 : (bits & 0x7f80) == 0;
    return (option & kFtz) != 0 && denormal ? std::copysign(0.0f, value) : value;
  };
  const float x = value_of(a), y = value_of(b);
  double exact;
  if constexpr (kOp == Op::kFma) {
    const double product = static_cast<double>(x) * y;
    const double z = value_of(c);
    exact = std::isfinite(product) && std::isfinite(z) ? odd_sum(product, z) : product + z;
  } else {
    exact = compute<kOp, float>(x, y, 0);
  }
  uint16_t bits = static_cast<uint16_t>(narrow(exact, kHalfType ? kHalf : kBrain, Rounding::kNearest));
  const uint16_t exponent = kHalfType ? 0x7c00 : 0x7f80;
  // Tiny: below the least normal number after rounding with an unbounded exponent.
  const double least = kHalfType ? 0x1p-14 - 0x1p-26 : 0x1p-126 - 0x1p-135;
  if ((option & kFtz) != 0 && std::fabs(exact) < least) bits &= 0x8000;
  const bool nan = (bits & 0x7fff) > exponent;
  if ((option & kSat) != 0) {
    const uint16_t one = kHalfType ? 0x3c00 : 0x3f80;
    bits = nan || (bits & 0x8000) != 0 ? 0 : std::min(bits, one);
  }
  if ((option & kRelu) != 0 && !nan && (bits & 0x8000) != 0) bits = 0;
  return bits;
}

template <Op kOp, bool kHalfType, size_t kPairs>
void run_16(Warp& w, const Instruction& i, uint32_t mask) {
  uint16_t* d = w.reg<uint16_t>(i.r[0]);
  const uint16_t* a = w.reg<uint16_t>(i.r[1]);
  const uint16_t* b = w.reg<uint16_t>(i.r[2]);
  const uint16_t* c = kOp == Op::kFma ? w.reg<uint16_t>(i.r[3]) : b;
  for_lanes(mask, [&](unsigned lane) {
    for (size_t n = lane * kPairs; n < (lane + 1) * kPairs; ++n)
      d[n] = compute16<kOp, kHalfType>(a[n], b[n], c[n], i.option);
  });
}

template <Op kOp>
void run_f32x2(Warp& w, const Instruction& i, uint32_t mask) {
  float* d = w.reg<float>(i.r[0]);
  const float* a = w.reg<float>(i.r[1]);
  const float* b = w.reg<float>(i.r[2]);
  const float* c = kOp == Op::kFma ? w.reg<float>(i.r[3]) : b;
  const bool ftz = (i.option & kFtz) != 0;
  const auto flush = [&](float value) { return ftz ? flushed(value) : value; };
  for_lanes(mask, [&](unsigned lane) {
    for (size_t n = lane * 2; n < lane * 2 + 2; ++n) {
      d[n] = canonical(flush(compute<kOp, float>(flush(a[n]), flush(b[n]), flush(c[n]))));
    }
  });
}

Type last_type(const Decoder& d) {
  const auto& modifiers = d.statement().modifiers;
  for (auto at = modifiers.rbegin(); at != modifiers.rend(); ++at) {
    if (const Type type = type_named(*at); type != Type::kNone) return type;
  }
  return Type::kNone;
}

template <Op kOp>
void decode_arithmetic(Decoder& d, Type type) {
  Rounding rounding = Rounding::kNearest;
  const bool rounded = d.take_rounding(&rounding);
  if (rounding == Rounding::kNearestAway) d.fail("{}: .rna is a rounding of cvt", d.opcode());
  if (kOp == Op::kFma && !rounded) d.fail("{} needs a rounding", d.opcode());
  uint8_t option = 0;
  if (d.take("ftz")) option |= kFtz;
  if (d.take("sat")) option |= kSat;
  if (kOp == Op::kFma && d.take("relu")) option |= kRelu;
  d.take_type_of(
      {Type::kF32, Type::kF64, Type::kF16, Type::kBf16, Type::kF16x2, Type::kBf16x2, Type::kF32x2});
  const bool small =
      type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
  if ((small || type == Type::kF32x2) && rounding != Rounding::kNearest)
    d.fail("{}: only .rn is implemented", d.opcode());
  if (type == Type::kF64 && option != 0) d.fail("{}: .f64 has no such option", d.opcode());
  if (type == Type::kF32x2 && (option & ~kFtz) != 0) d.fail("{}: .f32x2 has no such option", d.opcode());
  if (type == Type::kF32 && (option & kRelu) != 0) d.fail("{}: .relu is not an option of .f32", d.opcode());
  Handler run = nullptr;
  switch (type) {
    case Type::kF32:
      run = option != 0 || rounding != Rounding::kNearest ? run_f32_any<kOp>
            : kOp == Op::kFma                             ? plain_fma()
                                                          : run_f32<kOp>;
      break;
    case Type::kF64:
      run = run_f64<kOp>;
      break;
    case Type::kF16:
      run = run_16<kOp, true, 1>;
      break;
    case Type::kBf16:
      run = run_16<kOp, false, 1>;
      break;
    case Type::kF16x2:
      run = run_16<kOp, true, 2>;
      break;
    case Type::kBf16x2:
      run = run_16<kOp, false, 2>;
      break;
    default:
      run = run_f32x2<kOp>;
      break;
  }
  Instruction i = kOp == Op::kFma ? elementwise(d, run, type_bytes(type), {type, type, type})
                                  : elementwise(d, run, type_bytes(type), {type, type});
  i.rounding = rounding;
  i.option = option;
  d.emit(i);
}

// NaN loses unless `kNan`; -0 is below +0. T is float or double.
template <bool kMaximum, typename T>
inline T extreme(T a, T b, bool nan_wins) {
  if (a != a || b != b) {
    if (nan_wins || (a != a && b != b)) return std::numeric_limits<T>::quiet_NaN();
    return a != a ? b : a;
  }
  if (a == b) return std::signbit(a) == kMaximum ? b : a;
  return (a < b) == kMaximum ? b : a;
}

constexpr uint8_t kNanWins = 8;
constexpr uint8_t kXorSign = 16;

template <bool kMaximum>
inline float extreme_f32(float a, float b, uint8_t option) {
  if ((option & kFtz) != 0) {
    a = flushed(a);
    b = flushed(b);
  }
  if ((option & kXorSign) == 0) return canonical(extreme<kMaximum>(a, b, (option & kNanWins) != 0));
  const uint32_t sign = (std::bit_cast<uint32_t>(a) ^ std::bit_cast<uint32_t>(b)) & 0x8000'0000;
  const float value = canonical(extreme<kMaximum>(std::fabs(a), std::fabs(b), (option & kNanWins) != 0));
  return value != value ? value : std::bit_cast<float>((std::bit_cast<uint32_t>(value) & 0x7fff'ffff) | sign);
}

// Like extreme_f32(), without options and branches.
template <bool kMaximum>
inline float plain_extreme(float a, float b) {
  const uint32_t x = std::bit_cast<uint32_t>(a);
  const uint32_t y = std::bit_cast<uint32_t>(b);
  const float equal = std::bit_cast<float>(kMaximum ? x & y : x | y);
  const float chosen = (a < b) == kMaximum ? b : a;
  const float ordered = a == b ? equal : chosen;
  const float one = a != a ? b : b != b ? a : ordered;
  return canonical(one);
}

template <bool kMaximum>
void run_extreme_f32(Warp& w, const Instruction& i, uint32_t mask) {
  const uint8_t option = i.option;
  each_lane(
      mask, [option](float a, float b) { return extreme_f32<kMaximum>(a, b, option); }, w.reg<float>(i.r[0]),
      w.reg<float>(i.r[1]), w.reg<float>(i.r[2]));
}

template <bool kMaximum>
void run_extreme3_f32(Warp& w, const Instruction& i, uint32_t mask) {
  const uint8_t option = i.option;
  each_lane(
      mask,
      [option](float a, float b, float c) {
        return extreme_f32<kMaximum>(extreme_f32<kMaximum>(a, b, option), c, option);
      },
      w.reg<float>(i.r[0]), w.reg<float>(i.r[1]), w.reg<float>(i.r[2]), w.reg<float>(i.r[3]));
}

template <bool kMaximum>
void run_extreme_f64(Warp& w, const Instruction& i, uint32_t mask) {
  each_lane(
      mask, [](double a, double b) { return a != a && b != b ? quieted(b) : extreme<kMaximum>(a, b, false); },
      w.reg<double>(i.r[0]), w.reg<double>(i.r[1]), w.reg<double>(i.r[2]));
}

template <bool kMaximum, bool kHalfType, size_t kPairs>
void run_extreme_16(Warp& w, const Instruction& i, uint32_t mask) {
  uint16_t* d = w.reg<uint16_t>(i.r[0]);
  const uint16_t* a = w.reg<uint16_t>(i.r[1]);
  const uint16_t* b = w.reg<uint16_t>(i.r[2]);
  const auto value_of = [&](uint16_t bits) {
    const bool denormal = kHalfType ? (bits & 0x7c00) == 0 : (bits & 0x7f80) == 0;
    if ((i.option & kFtz) != 0 && denormal) bits &= 0x8000;
    return kHalfType ? half_value(bits) : brain_value(bits);
  };
  for_lanes(mask, [&](unsigned lane) {
    for (size_t n = lane * kPairs; n < (lane + 1) * kPairs; ++n) {
      float x = value_of(a[n]), y = value_of(b[n]);
      const bool xor_sign = (i.option & kXorSign) != 0, negative = std::signbit(x) != std::signbit(y);
      if (xor_sign) {
        x = std::fabs(x);
        y = std::fabs(y);
      }
      float value = extreme<kMaximum>(x, y, (i.option & kNanWins) != 0);
      if (xor_sign && negative) value = -value;
      d[n] = static_cast<uint16_t>(narrow(value, kHalfType ? kHalf : kBrain, Rounding::kNearest));
    }
  });
}

template <bool kMaximum>
void decode_extreme(Decoder& d, Type type) {
  uint8_t option = 0;
  if (d.take("ftz")) option |= kFtz;
  if (d.take("NaN")) option |= kNanWins;
  if (d.take("xorsign")) {
    d.need("abs");
    option |= kXorSign;
  }
  d.take_type_of({Type::kF32, Type::kF64, Type::kF16, Type::kBf16, Type::kF16x2, Type::kBf16x2});
  if (type == Type::kF64 && option != 0) d.fail("{}: .f64 has no such option", d.opcode());
  Handler run = nullptr;
  switch (type) {
    case Type::kF32:
      run = run_extreme_f32<kMaximum>;
      break;
    case Type::kF64:
      run = run_extreme_f64<kMaximum>;
      break;
    case Type::kF16:
      run = run_extreme_16<kMaximum, true, 1>;
      break;
    case Type::kBf16:
      run = run_extreme_16<kMaximum, false, 1>;
      break;
    case Type::kF16x2:
      run = run_extreme_16<kMaximum, true, 2>;
      break;
    default:
      run = run_extreme_16<kMaximum, false, 2>;
      break;
  }
  const bool three = type == Type::kF32 && d.operand_count() == 4;
  Instruction i = three ? elementwise(d, run_extreme3_f32<kMaximum>, 4, {type, type, type})
                        : elementwise(d, run, type_bytes(type), {type, type});
  i.option = option;
  d.emit(i);
}

// NaN becomes canonical; f64 NaN becomes quiet and keeps its sign.
template <bool kAbsolute, bool kFlush>
inline float signed_value(float a) {
  const float value = kAbsolute ? std::fabs(a) : -a;
  return canonical(kFlush ? flushed(value) : value);
}
template <bool kAbsolute>
inline double signed_double(double a) {
  if (a != a) return quieted(a);
  return kAbsolute ? std::fabs(a) : -a;
}
template <bool kAbsolute, uint16_t kInfinity, bool kFlush = false>
inline uint16_t signed_16(uint16_t bits) {
  if ((bits & 0x7fff) > kInfinity) return kNan16;
  if (kFlush && (bits & kInfinity) == 0) bits &= 0x8000;
  return static_cast<uint16_t>(kAbsolute ? bits & 0x7fff : bits ^ 0x8000);
}
template <bool kAbsolute, uint16_t kInfinity, bool kFlush = false>
inline uint32_t signed_pair(uint32_t pair) {
  return uint32_t{signed_16<kAbsolute, kInfinity, kFlush>(static_cast<uint16_t>(pair >> 16))} << 16 |
         signed_16<kAbsolute, kInfinity, kFlush>(static_cast<uint16_t>(pair));
}

template <bool kAbsolute>
void decode_sign(Decoder& d, Type type) {
  const bool ftz = d.take("ftz");
  d.take_type();
  if (ftz && type != Type::kF32 && type != Type::kF16 && type != Type::kF16x2)
    d.fail("{}: .{} has no .ftz", d.opcode(), type_name(type));
  Handler run = nullptr;
  switch (type) {
    case Type::kF32:
      run = ftz ? unary<signed_value<kAbsolute, true>, float, float>
                : unary<signed_value<kAbsolute, false>, float, float>;
      break;
    case Type::kF64:
      run = unary<signed_double<kAbsolute>, double, double>;
      break;
    case Type::kF16:
      run = ftz ? unary<signed_16<kAbsolute, 0x7c00, true>, uint16_t, uint16_t>
                : unary<signed_16<kAbsolute, 0x7c00>, uint16_t, uint16_t>;
      break;
    case Type::kBf16:
      run = unary<signed_16<kAbsolute, 0x7f80>, uint16_t, uint16_t>;
      break;
    case Type::kF16x2:
      run = ftz ? unary<signed_pair<kAbsolute, 0x7c00, true>, uint32_t, uint32_t>
                : unary<signed_pair<kAbsolute, 0x7c00>, uint32_t, uint32_t>;
      break;
    case Type::kBf16x2:
      run = unary<signed_pair<kAbsolute, 0x7f80>, uint32_t, uint32_t>;
      break;
    default:
      d.fail("{} does not support the type .{}", d.statement().name, type_name(type));
  }
  emit_elementwise(d, run, type, 1);
}

inline float divide(float a, float b) {
  return canonical(static_cast<float>(static_cast<double>(a) / static_cast<double>(b)));
}

void decode_fma(Decoder& d) {
  decode_arithmetic<Op::kFma>(d, last_type(d));
}

}  // namespace

bool decode_float_add_sub(Decoder& d, bool subtract) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  subtract ? decode_arithmetic<Op::kSubtract>(d, type) : decode_arithmetic<Op::kAdd>(d, type);
  return true;
}

bool decode_float_mul(Decoder& d) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  decode_arithmetic<Op::kMultiply>(d, type);
  return true;
}

bool decode_float_mad(Decoder& d) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  decode_arithmetic<Op::kFma>(d, type);
  return true;
}

bool decode_float_div(Decoder& d) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  if (d.take("approx") || d.take("full")) {
    const bool ftz = d.take("ftz");
    d.take_type_of({Type::kF32});
    emit_elementwise(
        d,
        ftz ? binary<[](float a, float b) { return flushed(divide(flushed(a), flushed(b))); }, float, float>
            : binary<divide, float, float>,
        type, 2);
    return true;
  }
  if (type != Type::kF32 && type != Type::kF64) d.fail("div does not support the type .{}", type_name(type));
  decode_arithmetic<Op::kDivide>(d, type);
  return true;
}

bool decode_float_min_max(Decoder& d, bool maximum) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  maximum ? decode_extreme<true>(d, type) : decode_extreme<false>(d, type);
  return true;
}

bool decode_float_sign(Decoder& d, bool absolute) {
  const Type type = last_type(d);
  if (!is_float(type)) return false;
  absolute ? decode_sign<true>(d, type) : decode_sign<false>(d, type);
  return true;
}

std::span<const Opcode> floating_opcodes() {
  static constexpr Opcode kOpcodes[] = {{"fma", decode_fma}};
  return kOpcodes;
}

}  // namespace strata::gpu_tests
