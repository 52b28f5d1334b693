// Roots, reciprocals, exponentials and trigonometry. The approximate forms are computed in double precision
// and rounded.
#include <limits>

#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

inline double reciprocal(double x) {
  return 1 / x;
}
inline double reciprocal_root(double x) {
  return 1 / std::sqrt(x);
}

template <double (*kFunction)(double)>
inline float approximated(float x) {
  return canonical(static_cast<float>(kFunction(double{x})));
}
template <double (*kFunction)(double)>
inline float approximated_flushed(float x) {
  return flushed(approximated<kFunction>(flushed(x)));
}

template <double (*kFunction)(double)>
void decode_approximate(Decoder& d) {
  d.need("approx");
  const bool ftz = d.take("ftz");
  const Type type = d.take_type_of({Type::kF32});
  emit_elementwise(d,
                   ftz ? unary<approximated_flushed<kFunction>, float, float>
                       : unary<approximated<kFunction>, float, float>,
                   type, 1);
}

// ex2 and tanh also support small floats.
template <double (*kFunction)(double), bool kHalfType, size_t kPairs>
void run_16(Warp& w, const Instruction& i, uint32_t mask) {
  uint16_t* d = w.reg<uint16_t>(i.r[0]);
  const uint16_t* a = w.reg<uint16_t>(i.r[1]);
  for_lanes(mask, [&](unsigned lane) {
    for (size_t n = lane * kPairs; n < (lane + 1) * kPairs; ++n) {
      const uint16_t bits =
          i.option != 0 && (a[n] & (kHalfType ? 0x7c00 : 0x7f80)) == 0 ? a[n] & 0x8000 : a[n];
      uint16_t value =
          static_cast<uint16_t>(narrow(kFunction(double{kHalfType ? half_value(bits) : brain_value(bits)}),
                                       kHalfType ? kHalf : kBrain, Rounding::kNearest));
      if (i.option != 0 && (value & (kHalfType ? 0x7c00 : 0x7f80)) == 0) value &= 0x8000;
      d[n] = value;
    }
  });
}

template <double (*kFunction)(double)>
void decode_approximate_any(Decoder& d) {
  d.need("approx");
  const bool ftz = d.take("ftz");
  const Type type = d.take_type_of({Type::kF32, Type::kF16, Type::kF16x2, Type::kBf16, Type::kBf16x2});
  Handler run = nullptr;
  switch (type) {
    case Type::kF32:
      run = ftz ? unary<approximated_flushed<kFunction>, float, float>
                : unary<approximated<kFunction>, float, float>;
      break;
    case Type::kF16:
      run = run_16<kFunction, true, 1>;
      break;
    case Type::kF16x2:
      run = run_16<kFunction, true, 2>;
      break;
    case Type::kBf16:
      run = run_16<kFunction, false, 1>;
      break;
    default:
      run = run_16<kFunction, false, 2>;
      break;
  }
  Instruction i = elementwise(d, run, type_bytes(type), {type});
  i.option = ftz ? 1 : 0;
  d.emit(i);
}

enum class Function { kRoot, kReciprocal };

template <Function kFunction, typename T>
void run_rounded(Warp& w, const Instruction& i, uint32_t mask) {
  const RoundingScope scope(i.rounding);
  T* d = w.reg<T>(i.r[0]);
  const T* a = w.reg<T>(i.r[1]);
  for_lanes(mask, [&](unsigned lane) {
    volatile T x = a[lane];
    if constexpr (sizeof(T) == 4) {
      if (i.option != 0) x = flushed(x);
    }
    volatile T value = kFunction == Function::kRoot ? std::sqrt(x) : T{1} / x;
    if constexpr (sizeof(T) == 4) {
      d[lane] = canonical(i.option != 0 ? flushed(value) : value);
    } else {
      d[lane] = value;
    }
  });
}

// The f64 approximation has 20 mantissa bits: the low word of the result is zero.
template <double (*kFunction)(double)>
inline double upper_word(double x) {
  const auto zero_denormal = [](double value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0, value) : value;
  };
  const double value = zero_denormal(kFunction(zero_denormal(x)));
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & 0xffff'ffff'0000'0000);
}

template <Function kFunction>
void decode_rounded(Decoder& d) {
  if (d.next_modifier() == "approx") {
    const bool wide = d.statement().modifiers.back() == "f64";
    if (!wide) {
      decode_approximate<kFunction == Function::kRoot ? static_cast<double (*)(double)>(std::sqrt)
                                                      : reciprocal>(d);
      return;
    }
    if (kFunction == Function::kRoot) d.fail("sqrt.approx requires .f32");
    d.need("approx");
    d.need("ftz");
    d.take_type_of({Type::kF64});
    emit_elementwise(d, unary<upper_word<reciprocal>, double, double>, Type::kF64, 1);
    return;
  }
  Rounding rounding = Rounding::kNearest;
  if (!d.take_rounding(&rounding) || rounding == Rounding::kNearestAway)
    d.fail("{} needs a rounding or .approx", d.opcode());
  const bool ftz = d.take("ftz");
  const Type type = d.take_type_of({Type::kF32, Type::kF64});
  if (ftz && type == Type::kF64) d.fail("{}: .f64 has no .ftz", d.opcode());
  Instruction i =
      elementwise(d, type == Type::kF32 ? run_rounded<kFunction, float> : run_rounded<kFunction, double>,
                  type_bytes(type), {type});
  i.rounding = rounding;
  i.option = ftz ? 1 : 0;
  d.emit(i);
}

void decode_rsqrt(Decoder& d) {
  if (d.statement().modifiers.empty() || d.statement().modifiers.back() != "f64") {
    decode_approximate<reciprocal_root>(d);
    return;
  }
  d.need("approx");
  const bool ftz = d.take("ftz");
  d.take_type_of({Type::kF64});
  emit_elementwise(
      d, ftz ? unary<upper_word<reciprocal_root>, double, double> : unary<reciprocal_root, double, double>,
      Type::kF64, 1);
}

template <typename T>
inline T with_sign(T sign_of, T value) {
  return std::copysign(value, sign_of);
}

void decode_copysign(Decoder& d) {
  const Type type = d.take_type_of({Type::kF32, Type::kF64});
  emit_elementwise(
      d,
      type == Type::kF32 ? binary<with_sign<float>, float, float> : binary<with_sign<double>, double, double>,
      type, 2);
}

template <typename T>
inline bool has_property(T value, unsigned property) {
  switch (property) {
    case 0:
      return std::isfinite(value);
    case 1:
      return std::isinf(value);
    case 2:
      return !std::isnan(value);
    case 3:
      return std::isnan(value);
    case 4:
      return std::isnormal(value) || value == 0;
    default:
      return std::fpclassify(value) == FP_SUBNORMAL;
  }
}

void decode_testp(Decoder& d) {
  uint8_t property = 0;
  for (const char* name : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}) {
    if (d.take(name)) break;
    ++property;
  }
  if (property == 6) d.fail("{} needs a property", d.opcode());
  const Type type = d.take_type_of({Type::kF32, Type::kF64});
  d.need_operands(2);
  Instruction i;
  i.r[0] = d.predicate_destination(d.operand(0));
  i.r[1] = d.source(d.operand(1), type);
  i.type = type;
  i.option = property;
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    uint32_t& out = w.predicate(at.r[0]);
    for_lanes(mask, [&](unsigned lane) {
      const bool holds = at.type == Type::kF32 ? has_property(w.reg<float>(at.r[1])[lane], at.option)
                                               : has_property(w.reg<double>(at.r[1])[lane], at.option);
      out = (out & ~(1u << lane)) | static_cast<uint32_t>(holds) << lane;
    });
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {
    {"ex2", decode_approximate_any<std::exp2>},
    {"tanh", decode_approximate_any<std::tanh>},
    {"lg2", decode_approximate<std::log2>},
    {"sin", decode_approximate<std::sin>},
    {"cos", decode_approximate<std::cos>},
    {"rsqrt", decode_rsqrt},
    {"sqrt", decode_rounded<Function::kRoot>},
    {"rcp", decode_rounded<Function::kReciprocal>},
    {"copysign", decode_copysign},
    {"testp", decode_testp},
};

}  // namespace

std::span<const Opcode> special_function_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
