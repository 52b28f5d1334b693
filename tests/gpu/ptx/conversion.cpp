// cvt, cvta, isspacep.
#include <algorithm>
#include <limits>

#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

constexpr uint8_t kFtz = 1;
constexpr uint8_t kSat = 2;
constexpr uint8_t kToInteger = 4;  // rni, rzi, rmi, rpi
constexpr uint8_t kRelu = 8;
constexpr uint8_t kSatFinite = 16;

// An intermediate value: integers as sign and magnitude, floats as doubles, which represent every smaller
// float.
struct Number {
  bool integer = false;
  __int128 whole = 0;
  double real = 0;
};

Number load_number(const std::byte* reg, unsigned bytes, Type type, bool ftz) {
  uint64_t bits = 0;
  std::memcpy(&bits, reg, bytes);
  const auto small = static_cast<uint16_t>(bits);
  switch (type) {
    case Type::kU8:
      return {true, static_cast<uint8_t>(bits), 0};
    case Type::kS8:
      return {true, static_cast<int8_t>(bits), 0};
    case Type::kU16:
      return {true, small, 0};
    case Type::kS16:
      return {true, static_cast<int16_t>(bits), 0};
    case Type::kU32:
      return {true, static_cast<uint32_t>(bits), 0};
    case Type::kS32:
      return {true, static_cast<int32_t>(bits), 0};
    case Type::kU64:
      return {true, bits, 0};
    case Type::kS64:
      return {true, static_cast<int64_t>(bits), 0};
    case Type::kF16:
      return {false, 0, half_value(small)};
    case Type::kBf16:
      return {false, 0, brain_value(small)};
    case Type::kF64:
      return {false, 0, std::bit_cast<double>(bits)};
    default: {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      return {false, 0, ftz ? flushed(value) : value};
    }
  }
}

double round_whole(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

void limits(Type type, __int128* least, __int128* most) {
  const unsigned bits = type_bytes(type) * 8;
  *most = (static_cast<__int128>(1) << (is_signed(type) ? bits - 1 : bits)) - 1;
  *least = is_signed(type) ? -*most - 1 : 0;
}

// Preserves the sign and the high bits of the payload.
uint32_t narrowed_nan(double nan, Format format) {
  const uint64_t bits = std::bit_cast<uint64_t>(quieted(nan));
  const unsigned width = format.exponent + format.mantissa;
  const auto kept = static_cast<uint32_t>(bits >> (52 - format.mantissa)) & ((1u << width) - 1);
  return static_cast<uint32_t>(bits >> 63) << width | kept;
}

// Clamps values out of range. NaN becomes 0, or only the sign bit if either type has 64 bits.
uint64_t real_to_integer(double value, Type type, Type from, Rounding rounding) {
  if (value != value) {
    return type_bytes(type) == 8 || from == Type::kF64 ? uint64_t{1} << (type_bytes(type) * 8 - 1) : 0;
  }
  __int128 least, most;
  limits(type, &least, &most);
  const double whole = round_whole(value, rounding);
  if (whole <= static_cast<double>(least)) return static_cast<uint64_t>(least);
  if (whole >= static_cast<double>(most)) return static_cast<uint64_t>(most);
  return static_cast<uint64_t>(static_cast<__int128>(whole));
}

template <typename T>
inline T integer_to_real(__int128 whole, Rounding rounding) {
  const RoundingScope scope(rounding);
  if (whole < 0) {
    const volatile int64_t value = static_cast<int64_t>(whole);
    return static_cast<T>(value);
  }
  const volatile uint64_t value = static_cast<uint64_t>(whole);
  return static_cast<T>(value);
}

// For small floats: a double whose last bit is set if lower bits were dropped.
double odd_double(__int128 whole) {
  const bool negative = whole < 0;
  auto magnitude = static_cast<uint64_t>(negative ? -whole : whole);
  if (magnitude >> 53 != 0) {
    const uint64_t low = magnitude & 0xffff;
    magnitude = (magnitude & ~uint64_t{0xffff}) | (low != 0 ? 0x10000 : 0);
  }
  const auto value = static_cast<double>(magnitude);
  return negative ? -value : value;
}

uint32_t small_bits(double value, Format format, const Instruction& i) {
  if ((i.option & kRelu) != 0 && value <= 0) value = 0;  // -0 too
  if ((i.option & kSat) != 0) value = value != value ? 0 : std::clamp(value, 0.0, 1.0) + 0.0;
  if (value != value && i.from == Type::kF64) return narrowed_nan(value, format);
  const uint32_t bits = narrow(value, format, i.rounding);
  const uint32_t infinity = ((1u << format.exponent) - 1) << format.mantissa;
  const uint32_t magnitude = bits & ~(1u << (format.exponent + format.mantissa));
  return (i.option & kSatFinite) != 0 && magnitude == infinity ? bits - 1 : bits;
}

uint64_t convert(const Number& from, const Instruction& i) {
  const Type to = i.type;
  if (is_integer(to)) {
    if (!from.integer) return real_to_integer(from.real, to, i.from, i.rounding);
    if ((i.option & kSat) == 0) return static_cast<uint64_t>(from.whole);
    __int128 least, most;
    limits(to, &least, &most);
    return static_cast<uint64_t>(std::clamp(from.whole, least, most));
  }
  double real = from.real;
  if (from.integer && to == Type::kF32) real = integer_to_real<float>(from.whole, i.rounding);
  if (from.integer && to == Type::kF64) real = integer_to_real<double>(from.whole, i.rounding);
  if (from.integer && type_bytes(to) == 2) real = odd_double(from.whole);
  if ((i.option & kToInteger) != 0)
    real = real != real ? quieted(real) : std::copysign(round_whole(real, i.rounding), real);
  switch (to) {
    case Type::kF16:
      return small_bits(real, kHalf, i);
    case Type::kBf16:
      return small_bits(real, kBrain, i);
    case Type::kTf32:
      return uint64_t{small_bits(real, kTensor32, i)} << 13;
    case Type::kF64: {
      if ((i.option & kSat) != 0) real = real != real ? 0 : std::clamp(real, 0.0, 1.0) + 0.0;
      if ((i.option & kFtz) != 0) real = real != real ? double{canonical(NAN)} : real;
      return std::bit_cast<uint64_t>(real);
    }
    default: {
      float value;
      {
        const RoundingScope scope(i.rounding);
        const volatile double exact = real;
        const volatile float rounded = static_cast<float>(exact);
        value = rounded;
      }
      if ((i.option & kFtz) != 0) value = flushed(value);
      if ((i.option & kSat) != 0) value = saturated(value);
      const bool keeps_nan = i.from == Type::kBf16 || i.from == Type::kF64;
      return std::bit_cast<uint32_t>(keeps_nan ? value : canonical(value));
    }
  }
}

// Any pair of types. Registers may be wider than the types: r[2] and r[3] are not registers; `bytes` and
// `vector` have the widths.
void run_any(Warp& w, const Instruction& i, uint32_t mask) {
  std::byte* d = w.reg<std::byte>(i.r[0]);
  const std::byte* a = w.reg<std::byte>(i.r[1]);
  const unsigned from_width = i.vector;
  const unsigned to_width = i.bytes;
  // On a GPU, fp32 denormals are not flushed on conversion to f16: .rm and .rp round them away from zero.
  const bool flushes = (i.option & kFtz) != 0 && i.type != Type::kF16;
  for_lanes(mask, [&](unsigned lane) {
    uint64_t bits = convert(load_number(a + lane * from_width, from_width, i.from, flushes), i);
    // A result with fewer bits than the register is extended according to its type.
    const unsigned unused = 64 - 8 * type_bytes(i.type);
    if (is_signed(i.type)) {
      bits = static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
    } else if (unused > 0) {
      bits = bits << unused >> unused;
    }
    std::memcpy(d + lane * to_width, &bits, to_width);
  });
}

// cvt.rna.tf32 on a GPU: NaN loses its low bits, and may become infinity; .satfinite subtracts one unit.
template <bool kFinite>
uint32_t tensor32(uint32_t bits) {
  const bool finite = (bits & 0x7fff'ffff) < 0x7f80'0000;
  const uint32_t rounded = (finite ? bits + 0x1000 : bits) & 0xffff'e000;
  return kFinite && (rounded & 0x7fff'ffff) >= 0x7f80'0000 ? rounded - 0x2000 : rounded;
}

Handler fast_path(Type to, Type from, const Instruction& i) {
  struct Entry {
    Type to, from;
    Handler run;
  };
  static constexpr Entry kExact[] = {
      {Type::kU64, Type::kU32, unary<[](uint32_t a) { return a; }, uint64_t, uint32_t>},
      {Type::kS64, Type::kS32, unary<[](int32_t a) { return a; }, int64_t, int32_t>},
      {Type::kU32, Type::kU64, unary<[](uint64_t a) { return a; }, uint32_t, uint64_t>},
      {Type::kU32, Type::kU16, unary<[](uint16_t a) { return a; }, uint32_t, uint16_t>},
      {Type::kS32, Type::kS16, unary<[](int16_t a) { return a; }, int32_t, int16_t>},
      {Type::kU16, Type::kU32, unary<[](uint32_t a) { return a; }, uint16_t, uint32_t>},
      {Type::kF32, Type::kBf16, unary<[](uint16_t a) { return brain_value(a); }, float, uint16_t>},
      {Type::kF32, Type::kF16, unary<[](uint16_t a) { return canonical(half_value(a)); }, float, uint16_t>},
  };
  static constexpr Entry kNearestOnly[] = {
      {Type::kF32, Type::kS32, unary<[](int32_t a) { return static_cast<float>(a); }, float, int32_t>},
      {Type::kF32, Type::kU32, unary<[](uint32_t a) { return static_cast<float>(a); }, float, uint32_t>},
      {Type::kBf16, Type::kF32, unary<[](float a) { return to_brain(a); }, uint16_t, float>},
  };
  if (to == Type::kTf32 && i.rounding == Rounding::kNearestAway && i.bytes == 4 && i.vector == 4)
    return i.option == kSatFinite ? unary<tensor32<true>, uint32_t, uint32_t>
                                  : unary<tensor32<false>, uint32_t, uint32_t>;
  if (i.option != 0 || i.bytes != type_bytes(to) || i.vector != type_bytes(from)) return run_any;
  for (const Entry& one : kExact) {
    if (one.to == to && one.from == from) return one.run;
  }
  for (const Entry& one : kNearestOnly) {
    if (one.to == to && one.from == from && i.rounding == Rounding::kNearest) return one.run;
  }
  return run_any;
}

// cvt.rn.bf16x2.f32 d, high, low
void run_pair(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t* d = w.reg<uint32_t>(i.r[0]);
  const float* high = w.reg<float>(i.r[1]);
  const float* low = w.reg<float>(i.r[2]);
  if (i.type == Type::kBf16x2 && i.option == 0 && i.rounding == Rounding::kNearest) {
    each_lane(
        mask, [](float h, float l) { return uint32_t{to_brain(h)} << 16 | to_brain(l); }, d, high, low);
    return;
  }
  const Format format = i.type == Type::kBf16x2 ? kBrain : kHalf;
  for_lanes(mask, [&](unsigned lane) {
    d[lane] = small_bits(high[lane], format, i) << 16 | small_bits(low[lane], format, i);
  });
}

void decode_cvt(Decoder& d) {
  Instruction i;
  bool to_integer = false;
  const bool rounded = d.take_rounding(&i.rounding);
  if (!rounded) {
    for (const auto& [name, one] : {std::pair<const char*, Rounding>{"rni", Rounding::kNearest},
                                    {"rzi", Rounding::kZero},
                                    {"rmi", Rounding::kDown},
                                    {"rpi", Rounding::kUp}}) {
      if (!to_integer && d.take(name)) {
        to_integer = true;
        i.rounding = one;
      }
    }
  }
  for (;;) {
    if (d.take("ftz"))
      i.option |= kFtz;
    else if (d.take("sat"))
      i.option |= kSat;
    else if (d.take("relu"))
      i.option |= kRelu;
    else if (d.take("satfinite"))
      i.option |= kSatFinite;
    else
      break;
  }
  i.type = d.take_type();
  if (i.type == Type::kBf16x2 || i.type == Type::kF16x2) {
    if (!rounded) d.fail("{} needs a rounding", d.opcode());
    d.take_type_of({Type::kF32});
    d.need_operands(3);
    i.r[0] = d.destination(d.operand(0), 4);
    i.r[1] = d.source(d.operand(1), Type::kF32);
    i.r[2] = d.source(d.operand(2), Type::kF32);
    i.run = run_pair;
    d.emit(i);
    return;
  }
  i.from = d.take_type();
  const auto scalar = [](Type type) {
    return is_integer(type) || type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 ||
           type == Type::kF64;
  };
  if ((!scalar(i.type) && i.type != Type::kTf32) || !scalar(i.from))
    d.fail("{}: this pair of types is not implemented", d.opcode());
  const bool float_to = is_float(i.type);
  const bool float_from = is_float(i.from);
  if (i.type == Type::kTf32 && i.from != Type::kF32) d.fail("{}: .tf32 is made from .f32", d.opcode());
  const bool narrows = float_to && float_from &&
                       (type_bytes(i.type) < type_bytes(i.from) || i.type == Type::kTf32 ||
                        (type_bytes(i.type) == 2 && i.type != i.from));
  if (!float_to && float_from && !to_integer) d.fail("{} needs a rounding to an integer", d.opcode());
  if (float_to && !float_from && !rounded) d.fail("{} needs a rounding", d.opcode());
  if (narrows && !rounded) d.fail("{} needs a rounding", d.opcode());
  if (to_integer && !float_from) d.fail("{}: an integer is not rounded", d.opcode());
  if (rounded && !float_to) d.fail("{}: a rounding of floats for an integer", d.opcode());
  if (i.rounding == Rounding::kNearestAway && i.type != Type::kTf32)
    d.fail("{}: .rna is for .tf32", d.opcode());
  if (to_integer && float_to) {
    if (i.type != i.from) d.fail("{}: rounding to an integer keeps the type", d.opcode());
    i.option |= kToInteger;
  }
  if ((i.option & kSatFinite) != 0 && (!float_from || type_bytes(i.from) != 4 || !narrows))
    d.fail("{}: .satfinite is implemented from .f32 to smaller floats", d.opcode());
  d.need_operands(2);
  unsigned to_bytes = 0, from_bytes = 0;
  i.r[0] = d.loose_destination(d.operand(0), type_bytes(i.type), &to_bytes);
  i.r[1] = d.loose_source(d.operand(1), i.from, &from_bytes);
  if (from_bytes < type_bytes(i.from))
    d.fail("{} is narrower than .{}", d.operand(1).name, type_name(i.from));
  i.bytes = static_cast<uint8_t>(to_bytes);
  i.vector = static_cast<uint8_t>(from_bytes);
  i.run = fast_path(i.type, i.from, i);
  d.emit(i);
}

uint64_t space_base(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedBase;
    case Space::kLocal:
      return kLocalBase;
    case Space::kParam:
      return kParamBase;
    default:
      return 0;
  }
}

Space take_space(Decoder& d) {
  if (d.take("global")) return Space::kGlobal;
  if (d.take("shared::cta") || d.take("shared")) return Space::kShared;
  if (d.take("local")) return Space::kLocal;
  if (d.take("const")) return Space::kConst;
  if (d.take("param") || d.take("param::entry")) return Space::kParam;
  d.fail("{} needs a state space", d.opcode());
}

// Converts between generic addresses and those of a space. Global and constant addresses are generic.
void decode_cvta(Decoder& d) {
  const bool to = d.take("to");
  const Space space = take_space(d);
  const Type type = d.take_type_of({Type::kU64});
  d.need_operands(2);
  Instruction i;
  i.r[0] = d.destination(d.operand(0), 8);
  i.r[1] = d.source(d.operand(1), type);
  i.immediate = static_cast<int64_t>(to ? 0 - space_base(space) : space_base(space));
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const auto shift = static_cast<uint64_t>(at.immediate);
    each_lane(
        mask, [shift](uint64_t a) { return a + shift; }, w.reg<uint64_t>(at.r[0]), w.reg<uint64_t>(at.r[1]));
  };
  d.emit(i);
}

void decode_isspacep(Decoder& d) {
  Instruction i;
  i.space = take_space(d);
  d.need_operands(2);
  i.r[0] = d.predicate_destination(d.operand(0));
  i.r[1] = d.source(d.operand(1), Type::kU64);
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    uint32_t& out = w.predicate(at.r[0]);
    for_lanes(mask, [&](unsigned lane) {
      const uint64_t address = w.reg<uint64_t>(at.r[1])[lane];
      bool holds = address - space_base(at.space) < kWindowBytes;
      if (space_base(at.space) == 0) {
        const Region* region = address >= kGlobalBase ? w.block->launch->memory->find(address) : nullptr;
        const bool constant = region != nullptr && region->space == Space::kConst;
        holds = at.space == Space::kConst ? constant : address >= kGlobalBase && !constant;
      }
      out = (out & ~(1u << lane)) | static_cast<uint32_t>(holds) << lane;
    });
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {{"cvt", decode_cvt}, {"cvta", decode_cvta}, {"isspacep", decode_isspacep}};

}  // namespace

std::span<const Opcode> conversion_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
