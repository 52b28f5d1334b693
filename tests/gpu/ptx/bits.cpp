// Logic, shifts and bit fields.
#include <bit>

#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

template <typename F>
Handler with_width(unsigned bytes, F f) {
  return bytes == 2 ? f(uint16_t{}) : bytes == 4 ? f(uint32_t{}) : f(uint64_t{});
}

enum class Logic { kAnd, kOr, kXor };

template <Logic kLogic, typename T>
inline T logic(T a, T b) {
  return static_cast<T>(kLogic == Logic::kAnd ? a & b : kLogic == Logic::kOr ? a | b : a ^ b);
}

uint32_t guarded(uint32_t mask, bool negated) {
  return negated ? ~mask : mask;
}

template <Logic kLogic>
void decode_logic(Decoder& d) {
  const Type type = d.take_type_of({Type::kPred, Type::kB16, Type::kB32, Type::kB64});
  if (type != Type::kPred) {
    emit_elementwise(
        d,
        with_width(type_bytes(type), []<typename T>(T) -> Handler { return binary<logic<kLogic, T>, T, T>; }),
        type, 2);
    return;
  }
  d.need_operands(3);
  Instruction i;
  bool negated[2];
  i.r[0] = d.predicate_destination(d.operand(0));
  i.r[1] = d.predicate_source(d.operand(1), &negated[0]);
  i.r[2] = d.predicate_source(d.operand(2), &negated[1]);
  i.option = static_cast<uint8_t>((negated[0] ? 1 : 0) | (negated[1] ? 2 : 0));
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const uint32_t value = logic<kLogic, uint32_t>(guarded(w.predicate(at.r[1]), (at.option & 1) != 0),
                                                   guarded(w.predicate(at.r[2]), (at.option & 2) != 0));
    uint32_t& out = w.predicate(at.r[0]);
    out = (out & ~mask) | (value & mask);
  };
  d.emit(i);
}

void decode_not(Decoder& d) {
  const Type type = d.take_type_of({Type::kPred, Type::kB16, Type::kB32, Type::kB64});
  if (type != Type::kPred) {
    emit_elementwise(d,
                     with_width(type_bytes(type),
                                []<typename T>(T) -> Handler {
                                  return unary<[](T a) { return static_cast<T>(~a); }, T, T>;
                                }),
                     type, 1);
    return;
  }
  d.need_operands(2);
  Instruction i;
  bool negated;
  i.r[0] = d.predicate_destination(d.operand(0));
  i.r[1] = d.predicate_source(d.operand(1), &negated);
  i.option = negated ? 1 : 0;
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const uint32_t value = guarded(w.predicate(at.r[1]), at.option == 0);
    uint32_t& out = w.predicate(at.r[0]);
    out = (out & ~mask) | (value & mask);
  };
  d.emit(i);
}

void decode_cnot(Decoder& d) {
  const Type type = d.take_type_of({Type::kB16, Type::kB32, Type::kB64});
  emit_elementwise(d,
                   with_width(type_bytes(type),
                              []<typename T>(T) -> Handler {
                                return unary<[](T a) { return static_cast<T>(a == 0 ? 1 : 0); }, T, T>;
                              }),
                   type, 1);
}

// Shifts by the width or more yield 0, or copies of the sign.
void decode_shl(Decoder& d) {
  const Type type = d.take_type_of({Type::kB16, Type::kB32, Type::kB64});
  d.emit(elementwise(
      d,
      with_width(
          type_bytes(type),
          []<typename T>(T) -> Handler {
            return binary<[](T a, uint32_t by) { return static_cast<T>(by >= 8 * sizeof(T) ? 0 : a << by); },
                          T, T, uint32_t>;
          }),
      type_bytes(type), {type, Type::kU32}));
}

void decode_shr(Decoder& d) {
  const Type type = d.take_type();
  if (type_bytes(type) < 2 || is_float(type)) d.fail("shr does not support the type .{}", type_name(type));
  const auto make = []<typename T>(T) -> Handler {
    return binary<[](T a, uint32_t by) {
      if (by >= 8 * sizeof(T)) by = std::is_signed_v<T> ? 8 * sizeof(T) - 1 : by;
      return static_cast<T>(by >= 8 * sizeof(T) ? 0 : a >> by);
    },
                  T, T, uint32_t>;
  };
  const Handler run = type == Type::kS16   ? make(int16_t{})
                      : type == Type::kS32 ? make(int32_t{})
                      : type == Type::kS64 ? make(int64_t{})
                                           : with_width(type_bytes(type), make);
  d.emit(elementwise(d, run, type_bytes(type), {type, Type::kU32}));
}

void decode_shf(Decoder& d) {
  const bool left = d.take("l");
  if (!left) d.need("r");
  const bool wraps = d.take("wrap");
  if (!wraps) d.need("clamp");
  d.take_type_of({Type::kB32});
  const auto make = [&](auto left_, auto wraps_) -> Handler {
    return ternary<[](uint32_t low, uint32_t high, uint32_t by) {
      const uint32_t shift = decltype(wraps_)::value ? by & 31 : (by > 32 ? 32 : by);
      const uint64_t both = uint64_t{high} << 32 | low;
      return static_cast<uint32_t>(decltype(left_)::value ? (both << shift) >> 32 : both >> shift);
    },
                   uint32_t, uint32_t>;
  };
  const Handler run =
      left ? (wraps ? make(std::true_type{}, std::true_type{}) : make(std::true_type{}, std::false_type{}))
           : (wraps ? make(std::false_type{}, std::true_type{}) : make(std::false_type{}, std::false_type{}));
  emit_elementwise(d, run, Type::kB32, 3);
}

// The position or length of a field. For 32-bit fields it is the low byte, as PTX requires; for 64-bit fields
// a GPU uses the whole operand.
template <typename T>
inline uint32_t field_count(uint32_t operand) {
  return sizeof(T) == 8 ? std::min(operand, 255u) : operand & 0xff;
}

template <typename T>
inline T field(T value, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = 8 * sizeof(T);
  position = field_count<T>(position);
  length = field_count<T>(length);
  const bool negative = std::is_signed_v<T> && length > 0 &&
                        ((static_cast<U>(value) >> std::min(position + length - 1, kBits - 1)) & 1) != 0;
  const U filled = negative ? ~U{0} : U{0};
  if (length == 0) return 0;
  U bits = position >= kBits ? filled : static_cast<U>(static_cast<U>(value) >> position);
  // The sign continues beyond the top.
  if (position < kBits && position > 0 && negative) bits |= static_cast<U>(~U{0} << (kBits - position));
  if (length < kBits) {
    const U mask = static_cast<U>((U{1} << length) - 1);
    bits = (bits & mask) | (filled & static_cast<U>(~mask));
  }
  return static_cast<T>(bits);
}

void decode_bfe(Decoder& d) {
  const Type type = d.take_type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  const auto make = []<typename T>(T) -> Handler { return ternary<field<T>, T, T, uint32_t, uint32_t>; };
  const Handler run = type == Type::kU32   ? make(uint32_t{})
                      : type == Type::kS32 ? make(int32_t{})
                      : type == Type::kU64 ? make(uint64_t{})
                                           : make(int64_t{});
  d.emit(elementwise(d, run, type_bytes(type), {type, Type::kU32, Type::kU32}));
}

// d = b with the field replaced by a's low bits. Has five registers: the last is in the pool.
void decode_bfi(Decoder& d) {
  const Type type = d.take_type_of({Type::kB32, Type::kB64});
  d.need_operands(5);
  Instruction i;
  i.r[0] = d.destination(d.operand(0), type_bytes(type));
  i.r[1] = d.source(d.operand(1), type);
  i.r[2] = d.source(d.operand(2), type);
  i.r[3] = d.source(d.operand(3), Type::kU32);
  const uint32_t length[] = {d.source(d.operand(4), Type::kU32)};
  i.more = d.pool(length);
  const auto make = []<typename T>(T) -> Handler {
    return [](Warp& w, const Instruction& at, uint32_t mask) {
      each_lane(
          mask,
          [](T a, T b, uint32_t position, uint32_t bits) {
            position = field_count<T>(position);
            bits = field_count<T>(bits);
            if (position >= 8 * sizeof(T)) return b;
            const T ones = bits >= 8 * sizeof(T) ? ~T{0} : static_cast<T>((T{1} << bits) - 1);
            return static_cast<T>((b & ~(ones << position)) | ((a & ones) << position));
          },
          w.reg<T>(at.r[0]), w.reg<T>(at.r[1]), w.reg<T>(at.r[2]), w.reg<uint32_t>(at.r[3]),
          w.reg<uint32_t>(w.more(at)[0]));
    };
  };
  i.run = type_bytes(type) == 4 ? make(uint32_t{}) : make(uint64_t{});
  d.emit(i);
}

// `width` ones from bit `position` on, as in the pseudo-code of the PTX ISA.
template <bool kClamp>
inline uint32_t bit_mask(uint32_t position, uint32_t width) {
  const bool outside = kClamp && position >= 32;
  const uint32_t from = outside ? 0 : ~0u << (position & 31);
  const uint32_t end = (position & 31) + (width & 31);
  const bool to_the_top = end >= 32 || outside || (kClamp && width >= 32);
  const uint32_t beyond = to_the_top ? 0 : ~0u << end;
  return (width & 31) == 0 && !to_the_top ? 0 : from & ~beyond;
}

void decode_bmsk(Decoder& d) {
  const bool clamps = d.take("clamp");
  if (!clamps) d.need("wrap");
  emit_elementwise(
      d, clamps ? binary<bit_mask<true>, uint32_t, uint32_t> : binary<bit_mask<false>, uint32_t, uint32_t>,
      d.take_type_of({Type::kB32}), 2);
}

// Extends the low `bits` bits according to the type.
template <typename T, bool kClamp>
inline T extended(T value, uint32_t bits) {
  return kClamp && bits >= 32 ? value : field<T>(value, 0, bits & 31);
}

void decode_szext(Decoder& d) {
  const bool clamps = d.take("clamp");
  if (!clamps) d.need("wrap");
  const Type type = d.take_type_of({Type::kU32, Type::kS32});
  const Handler run = type == Type::kU32
                          ? (clamps ? binary<extended<uint32_t, true>, uint32_t, uint32_t>
                                    : binary<extended<uint32_t, false>, uint32_t, uint32_t>)
                          : (clamps ? binary<extended<int32_t, true>, int32_t, int32_t, uint32_t>
                                    : binary<extended<int32_t, false>, int32_t, int32_t, uint32_t>);
  d.emit(elementwise(d, run, 4, {type, Type::kU32}));
}

// The most significant bit that differs from the sign, or its distance from the top.
template <typename T, bool kDistance>
inline uint32_t find_bit(T value) {
  using U = std::make_unsigned_t<T>;
  const U bits =
      static_cast<U>(std::is_signed_v<T> && value < 0 ? ~static_cast<U>(value) : static_cast<U>(value));
  if (bits == 0) return 0xffff'ffff;
  const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
  return kDistance ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
}

void decode_bfind(Decoder& d) {
  const bool distance = d.take("shiftamt");
  const Type type = d.take_type_of({Type::kU32, Type::kS32, Type::kU64, Type::kS64});
  const auto make = [&]<typename T>(T) -> Handler {
    return distance ? unary<find_bit<T, true>, uint32_t, T> : unary<find_bit<T, false>, uint32_t, T>;
  };
  const Handler run = type == Type::kU32   ? make(uint32_t{})
                      : type == Type::kS32 ? make(int32_t{})
                      : type == Type::kU64 ? make(uint64_t{})
                                           : make(int64_t{});
  d.emit(elementwise(d, run, 4, {type}));
}

template <bool kPopulation>
void decode_count(Decoder& d) {
  const Type type = d.take_type_of({Type::kB32, Type::kB64});
  const auto make = []<typename T>(T) -> Handler {
    return unary<[](T a) { return kPopulation ? std::popcount(a) : std::countl_zero(a); }, uint32_t, T>;
  };
  d.emit(elementwise(d, type_bytes(type) == 4 ? make(uint32_t{}) : make(uint64_t{}), 4, {type}));
}

template <typename T>
inline T reversed(T value) {
  T out = 0;
  for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit) out = static_cast<T>(out << 1 | (value >> bit & 1));
  return out;
}

void decode_brev(Decoder& d) {
  const Type type = d.take_type_of({Type::kB32, Type::kB64});
  emit_elementwise(d,
                   type_bytes(type) == 4 ? unary<reversed<uint32_t>, uint32_t, uint32_t>
                                         : unary<reversed<uint64_t>, uint64_t, uint64_t>,
                   type, 1);
}

// Bit k of the table is the result for bits of a, b and c with k = 4a + 2b + c.
void decode_lop3(Decoder& d) {
  d.take_type_of({Type::kB32});
  d.need_operands(5);
  Instruction i;
  i.r[0] = d.destination(d.operand(0), 4);
  for (size_t n = 1; n < 4; ++n) i.r[n] = d.source(d.operand(n), Type::kB32);
  i.option = static_cast<uint8_t>(d.integer_operand(d.operand(4), 0, 255));
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    uint32_t term[8];
    for (unsigned k = 0; k < 8; ++k) term[k] = (at.option >> k & 1) != 0 ? 0xffff'ffff : 0;
    each_lane(
        mask,
        [&](uint32_t a, uint32_t b, uint32_t c) {
          return (term[0] & ~a & ~b & ~c) | (term[1] & ~a & ~b & c) | (term[2] & ~a & b & ~c) |
                 (term[3] & ~a & b & c) | (term[4] & a & ~b & ~c) | (term[5] & a & ~b & c) |
                 (term[6] & a & b & ~c) | (term[7] & a & b & c);
        },
        w.reg<uint32_t>(at.r[0]), w.reg<uint32_t>(at.r[1]), w.reg<uint32_t>(at.r[2]),
        w.reg<uint32_t>(at.r[3]));
  };
  d.emit(i);
}

enum class Permute { kBytes, kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };

template <Permute kMode>
inline uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t n = 0; n < 4; ++n) {
    uint32_t index;
    bool sign = false;
    const uint32_t low = c & 3;
    switch (kMode) {
      case Permute::kBytes:
        index = c >> (4 * n) & 7;
        sign = (c >> (4 * n) & 8) != 0;
        break;
      case Permute::kForward4:
        index = low + n;
        break;
      case Permute::kBackward4:
        index = (low + 8 - n) & 7;
        break;
      case Permute::kReplicate8:
        index = low;
        break;
      case Permute::kEdgeLeft:
        index = std::max(n, low);
        break;
      case Permute::kEdgeRight:
        index = std::min(n, low);
        break;
      case Permute::kReplicate16:
        index = (c & 1) * 2 + (n & 1);
        break;
    }
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * index)) & 0xff;
    if (sign) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= byte << (8 * n);
  }
  return out;
}

void decode_prmt(Decoder& d) {
  d.take_type_of({Type::kB32});
  const auto make = []<Permute kMode>() -> Handler { return ternary<permute<kMode>, uint32_t, uint32_t>; };
  Handler run = make.operator()<Permute::kBytes>();
  if (d.take("f4e"))
    run = make.operator()<Permute::kForward4>();
  else if (d.take("b4e"))
    run = make.operator()<Permute::kBackward4>();
  else if (d.take("rc8"))
    run = make.operator()<Permute::kReplicate8>();
  else if (d.take("ecl"))
    run = make.operator()<Permute::kEdgeLeft>();
  else if (d.take("ecr"))
    run = make.operator()<Permute::kEdgeRight>();
  else if (d.take("rc16"))
    run = make.operator()<Permute::kReplicate16>();
  emit_elementwise(d, run, Type::kB32, 3);
}

constexpr Opcode kOpcodes[] = {
    {"and", decode_logic<Logic::kAnd>},
    {"or", decode_logic<Logic::kOr>},
    {"xor", decode_logic<Logic::kXor>},
    {"not", decode_not},
    {"cnot", decode_cnot},
    {"shl", decode_shl},
    {"shr", decode_shr},
    {"shf", decode_shf},
    {"bfe", decode_bfe},
    {"bfi", decode_bfi},
    {"bfind", decode_bfind},
    {"bmsk", decode_bmsk},
    {"szext", decode_szext},
    {"popc", decode_count<true>},
    {"clz", decode_count<false>},
    {"brev", decode_brev},
    {"lop3", decode_lop3},
    {"prmt", decode_prmt},
};

}  // namespace

std::span<const Opcode> bit_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
