// Integer arithmetic.
#include <algorithm>
#include <limits>

#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

using Wide = __int128;
using UnsignedWide = unsigned __int128;

// Calls f with a value of the C++ type that corresponds to a PTX type.
template <typename F>
Handler with_integer(Decoder& d, Type type, F f) {
  switch (type) {
    case Type::kU16:
      return f(uint16_t{});
    case Type::kU32:
      return f(uint32_t{});
    case Type::kU64:
      return f(uint64_t{});
    case Type::kS16:
      return f(int16_t{});
    case Type::kS32:
      return f(int32_t{});
    case Type::kS64:
      return f(int64_t{});
    default:
      d.fail("{} does not support the type .{}", d.statement().name, type_name(type));
  }
}

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
inline T wrapped_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <typename T>
inline T wrapped_subtract(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <typename T>
inline T low_product(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <typename T>
inline T high_product(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using W = std::conditional_t<std::is_signed_v<T>, Wide, UnsignedWide>;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> 64);
  } else {
    using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
  }
}
template <typename T>
struct Twice;
template <>
struct Twice<uint16_t> {
  using type = uint32_t;
};
template <>
struct Twice<int16_t> {
  using type = int32_t;
};
template <>
struct Twice<uint32_t> {
  using type = uint64_t;
};
template <>
struct Twice<int32_t> {
  using type = int64_t;
};
template <typename T>
inline typename Twice<T>::type wide_product(T a, T b) {
  using W = typename Twice<T>::type;
  return static_cast<W>(static_cast<W>(a) * static_cast<W>(b));
}
template <typename T>
inline T saturated(Wide value) {
  return static_cast<T>(
      std::clamp<Wide>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}
// Multiplies the low 24 bits; the result has 48 bits.
template <typename T>
inline int64_t product24(T a, T b) {
  constexpr auto low = [](T value) {
    return std::is_signed_v<T>
               ? static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(value) << 8) >> 8)
               : static_cast<int64_t>(static_cast<uint32_t>(value) & 0xffffff);
  };
  return low(a) * low(b);
}
// Division by zero yields all ones, as on hardware; PTX leaves it undefined.
template <typename T>
inline T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return wrapped_subtract<T>(0, a);
  }
  return static_cast<T>(a / b);
}
template <typename T>
inline T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}

// --- add, sub, mul, mad also support floats, which floating.cpp decodes.

template <bool kSubtract>
void decode_add_sub(Decoder& d) {
  if (d.next_modifier() == "cc") {
    d.need("cc");
    const Type type = d.take_type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
    const auto carry = []<typename T>(T) -> Handler {
      return [](Warp& w, const Instruction& i, uint32_t mask) {
        T* out = w.reg<T>(i.r[0]);
        const T* a = w.reg<T>(i.r[1]);
        const T* b = w.reg<T>(i.r[2]);
        for_lanes(mask, [&](unsigned lane) {
          const T sum = kSubtract ? a[lane] - b[lane] : a[lane] + b[lane];
          const bool carried = kSubtract ? a[lane] < b[lane] : sum < a[lane];
          w.carry = (w.carry & ~(1u << lane)) | static_cast<uint32_t>(carried) << lane;
          out[lane] = sum;
        });
      };
    };
    emit_elementwise(d, type_bytes(type) == 8 ? carry(uint64_t{}) : carry(uint32_t{}), type, 2);
    return;
  }
  if (decode_float_add_sub(d, kSubtract)) return;
  if (d.take("sat")) {
    const Type type = d.take_type_of({Type::kS32});
    emit_elementwise(
        d,
        binary<[](int32_t a, int32_t b) { return saturated<int32_t>(kSubtract ? Wide{a} - b : Wide{a} + b); },
               int32_t, int32_t>,
        type, 2);
    return;
  }
  const Type type = d.take_type();
  emit_elementwise(d,
                   with_integer(d, type,
                                []<typename T>(T) -> Handler {
                                  // Signed and unsigned sums have the same bits.
                                  using U = Unsigned<T>;
                                  return kSubtract ? binary<wrapped_subtract<U>, U, U>
                                                   : binary<wrapped_add<U>, U, U>;
                                }),
                   type, 2);
}

template <bool kSubtract>
void decode_add_sub_carry(Decoder& d) {
  const bool sets = d.take("cc");
  const Type type = d.take_type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  const auto carry = []<typename T>(T) -> Handler {
    return [](Warp& w, const Instruction& i, uint32_t mask) {
      T* out = w.reg<T>(i.r[0]);
      const T* a = w.reg<T>(i.r[1]);
      const T* b = w.reg<T>(i.r[2]);
      for_lanes(mask, [&](unsigned lane) {
        const T in = w.carry >> lane & 1;
        const UnsignedWide exact =
            kSubtract ? UnsignedWide{a[lane]} - b[lane] - in : UnsignedWide{a[lane]} + b[lane] + in;
        if (i.option != 0) {
          const bool carried = (exact >> (8 * sizeof(T)) & 1) != 0;
          w.carry = (w.carry & ~(1u << lane)) | static_cast<uint32_t>(carried) << lane;
        }
        out[lane] = static_cast<T>(exact);
      });
    };
  };
  Instruction i = elementwise(d, type_bytes(type) == 8 ? carry(uint64_t{}) : carry(uint32_t{}),
                              type_bytes(type), {type, type});
  i.option = sets ? 1 : 0;
  d.emit(i);
}

// d = the low or high half of a · b, plus c, plus the carry for madc. `option`: 1 high, 2 adds the carry, 4
// sets it.
template <typename T>
void run_mad_carry(Warp& w, const Instruction& i, uint32_t mask) {
  using U = Unsigned<T>;
  T* out = w.reg<T>(i.r[0]);
  for_lanes(mask, [&](unsigned lane) {
    const T a = w.reg<T>(i.r[1])[lane];
    const T b = w.reg<T>(i.r[2])[lane];
    const U part = static_cast<U>((i.option & 1) != 0 ? high_product<T>(a, b) : low_product<T>(a, b));
    const uint32_t in = (i.option & 2) != 0 ? w.carry >> lane & 1 : 0;
    const UnsignedWide sum = UnsignedWide{part} + static_cast<U>(w.reg<T>(i.r[3])[lane]) + in;
    if ((i.option & 4) != 0) {
      const bool carried = (sum >> (8 * sizeof(T))) != 0;
      w.carry = (w.carry & ~(1u << lane)) | static_cast<uint32_t>(carried) << lane;
    }
    out[lane] = static_cast<T>(sum);
  });
}

void emit_mad_carry(Decoder& d, bool high, bool adds) {
  const bool sets = d.take("cc");
  const Type type = d.take_type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  const Handler run = type == Type::kU32   ? run_mad_carry<uint32_t>
                      : type == Type::kS32 ? run_mad_carry<int32_t>
                      : type == Type::kU64 ? run_mad_carry<uint64_t>
                                           : run_mad_carry<int64_t>;
  Instruction i = elementwise(d, run, type_bytes(type), {type, type, type});
  i.option = static_cast<uint8_t>((high ? 1 : 0) | (adds ? 2 : 0) | (sets ? 4 : 0));
  d.emit(i);
}

void decode_madc(Decoder& d) {
  const bool high = d.take("hi");
  if (!high) d.need("lo");
  emit_mad_carry(d, high, true);
}

Type twice(Decoder& d, Type type) {
  switch (type) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      d.fail("{}.wide does not support the type .{}", d.statement().name, type_name(type));
  }
}

void decode_mul(Decoder& d) {
  if (decode_float_mul(d)) return;
  if (d.take("lo")) {
    const Type type = d.take_type();
    emit_elementwise(d,
                     with_integer(d, type,
                                  []<typename T>(T) -> Handler {
                                    using U = Unsigned<T>;
                                    return binary<low_product<U>, U, U>;
                                  }),
                     type, 2);
  } else if (d.take("hi")) {
    const Type type = d.take_type();
    emit_elementwise(
        d, with_integer(d, type, []<typename T>(T) -> Handler { return binary<high_product<T>, T, T>; }),
        type, 2);
  } else {
    d.need("wide");
    const Type type = d.take_type();
    const Type result = twice(d, type);
    const Handler run = type == Type::kU16   ? binary<wide_product<uint16_t>, uint32_t, uint16_t>
                        : type == Type::kS16 ? binary<wide_product<int16_t>, int32_t, int16_t>
                        : type == Type::kU32 ? binary<wide_product<uint32_t>, uint64_t, uint32_t>
                                             : binary<wide_product<int32_t>, int64_t, int32_t>;
    d.emit(elementwise(d, run, type_bytes(result), {type, type}));
  }
}

void decode_mad(Decoder& d) {
  if (decode_float_mad(d)) return;
  const auto& modifiers = d.statement().modifiers;
  if (modifiers.size() > 1 && modifiers[1] == "cc") {
    const bool high = d.take("hi");
    if (!high) d.need("lo");
    emit_mad_carry(d, high, false);
    return;
  }
  if (d.take("lo")) {
    const Type type = d.take_type();
    emit_elementwise(
        d,
        with_integer(
            d, type,
            []<typename T>(T) -> Handler {
              using U = Unsigned<T>;
              return ternary<[](U a, U b, U c) { return wrapped_add<U>(low_product<U>(a, b), c); }, U, U>;
            }),
        type, 3);
  } else if (d.take("hi")) {
    const bool saturates = d.take("sat");
    const Type type = d.take_type();
    if (saturates && type != Type::kS32) d.fail("mad.hi.sat is of .s32");
    if (saturates) {
      emit_elementwise(d,
                       ternary<[](int32_t a, int32_t b, int32_t c) {
                         return saturated<int32_t>(Wide{high_product(a, b)} + c);
                       },
                               int32_t, int32_t>,
                       type, 3);
      return;
    }
    emit_elementwise(
        d,
        with_integer(
            d, type,
            []<typename T>(T) -> Handler {
              return ternary<[](T a, T b, T c) { return wrapped_add<T>(high_product<T>(a, b), c); }, T, T>;
            }),
        type, 3);
  } else {
    d.need("wide");
    const Type type = d.take_type();
    const Type result = twice(d, type);
    const auto make = []<typename T>(T) -> Handler {
      using W = typename Twice<T>::type;
      return ternary<[](T a, T b, W c) { return wrapped_add<W>(wide_product<T>(a, b), c); }, W, T>;
    };
    const Handler run = type == Type::kU16   ? make(uint16_t{})
                        : type == Type::kS16 ? make(int16_t{})
                        : type == Type::kU32 ? make(uint32_t{})
                                             : make(int32_t{});
    d.emit(elementwise(d, run, type_bytes(result), {type, type, result}));
  }
}

template <bool kAdd>
void decode_mul24(Decoder& d) {
  const bool high = d.take("hi");
  if (!high) d.need("lo");
  const Type type = d.take_type_of({Type::kU32, Type::kS32});
  const auto make = [&]<typename T>(T) -> Handler {
    if constexpr (kAdd) {
      if (high)
        return ternary<[](T a, T b, T c) { return wrapped_add<T>(static_cast<T>(product24(a, b) >> 16), c); },
                       T, T>;
      return ternary<[](T a, T b, T c) { return wrapped_add<T>(static_cast<T>(product24(a, b)), c); }, T, T>;
    } else {
      if (high) return binary<[](T a, T b) { return (product24(a, b) >> 16); }, T, T>;
      return binary<[](T a, T b) { return product24(a, b); }, T, T>;
    }
  };
  emit_elementwise(d, type == Type::kU32 ? make(uint32_t{}) : make(int32_t{}), type, kAdd ? 3 : 2);
}

void decode_sad(Decoder& d) {
  const Type type = d.take_type();
  emit_elementwise(d,
                   with_integer(d, type,
                                []<typename T>(T) -> Handler {
                                  return ternary<[](T a, T b, T c) {
                                    return wrapped_add<T>(
                                        a < b ? wrapped_subtract(b, a) : wrapped_subtract(a, b), c);
                                  },
                                                 T, T>;
                                }),
                   type, 3);
}

void decode_div(Decoder& d) {
  if (decode_float_div(d)) return;
  const Type type = d.take_type();
  emit_elementwise(
      d, with_integer(d, type, []<typename T>(T) -> Handler { return binary<quotient<T>, T, T>; }), type, 2);
}

void decode_rem(Decoder& d) {
  const Type type = d.take_type();
  emit_elementwise(
      d, with_integer(d, type, []<typename T>(T) -> Handler { return binary<remainder<T>, T, T>; }), type, 2);
}

template <bool kMaximum>
void decode_min_max(Decoder& d) {
  if (decode_float_min_max(d, kMaximum)) return;
  const Type type = d.take_type();
  const bool relu = d.take("relu");
  if (relu) d.fail("{} with relu is not implemented", d.opcode());
  emit_elementwise(d,
                   with_integer(d, type,
                                []<typename T>(T) -> Handler {
                                  return binary<[](T a, T b) { return (a < b) == kMaximum ? b : a; }, T, T>;
                                }),
                   type, 2);
}

void decode_neg(Decoder& d) {
  if (decode_float_sign(d, false)) return;
  const Type type = d.take_type_of({Type::kS16, Type::kS32, Type::kS64});
  emit_elementwise(d,
                   with_integer(d, type,
                                []<typename T>(T) -> Handler {
                                  return unary<[](T a) { return wrapped_subtract<T>(0, a); }, T, T>;
                                }),
                   type, 1);
}

void decode_abs(Decoder& d) {
  if (decode_float_sign(d, true)) return;
  const Type type = d.take_type_of({Type::kS16, Type::kS32, Type::kS64});
  emit_elementwise(
      d,
      with_integer(d, type,
                   []<typename T>(T) -> Handler {
                     return unary<[](T a) { return a < 0 ? wrapped_subtract<T>(0, a) : a; }, T, T>;
                   }),
      type, 1);
}

// d = c + Σ a.byte[k] · b.byte[k]
void decode_dp4a(Decoder& d) {
  const Type a = d.take_type_of({Type::kU32, Type::kS32});
  const Type b = d.take_type_of({Type::kU32, Type::kS32});
  Instruction i = elementwise(d, nullptr, 4, {a, b, Type::kS32});
  i.option = static_cast<uint8_t>((is_signed(a) ? 1 : 0) | (is_signed(b) ? 2 : 0));
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const auto byte = [](uint32_t value, int k, bool is_negative) {
      const auto bits = static_cast<uint8_t>(value >> (8 * k));
      return is_negative ? static_cast<int32_t>(static_cast<int8_t>(bits)) : static_cast<int32_t>(bits);
    };
    each_lane(
        mask,
        [&](uint32_t x, uint32_t y, uint32_t sum) {
          for (int k = 0; k < 4; ++k)
            sum += static_cast<uint32_t>(byte(x, k, (at.option & 1) != 0) * byte(y, k, (at.option & 2) != 0));
          return sum;
        },
        w.reg<uint32_t>(at.r[0]), w.reg<uint32_t>(at.r[1]), w.reg<uint32_t>(at.r[2]),
        w.reg<uint32_t>(at.r[3]));
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {
    {"add", decode_add_sub<false>},
    {"sub", decode_add_sub<true>},
    {"addc", decode_add_sub_carry<false>},
    {"subc", decode_add_sub_carry<true>},
    {"mul", decode_mul},
    {"mad", decode_mad},
    {"madc", decode_madc},
    {"mul24", decode_mul24<false>},
    {"mad24", decode_mul24<true>},
    {"sad", decode_sad},
    {"div", decode_div},
    {"rem", decode_rem},
    {"min", decode_min_max<false>},
    {"max", decode_min_max<true>},
    {"neg", decode_neg},
    {"abs", decode_abs},
    {"dp4a", decode_dp4a},
};

}  // namespace

std::span<const Opcode> integer_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
