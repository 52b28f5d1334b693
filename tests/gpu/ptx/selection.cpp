// setp, set, selp, slct: comparisons and selection.
#include <array>
#include <cmath>

#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };

template <Compare kCompare, typename T>
inline bool compare(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool unordered = std::isunordered(a, b);
    switch (kCompare) {
      case Compare::kEq:
        return a == b;
      case Compare::kNe:
        return !unordered && a != b;
      case Compare::kLt:
        return a < b;
      case Compare::kLe:
        return a <= b;
      case Compare::kGt:
        return a > b;
      case Compare::kGe:
        return a >= b;
      case Compare::kEqu:
        return unordered || a == b;
      case Compare::kNeu:
        return unordered || a != b;
      case Compare::kLtu:
        return unordered || a < b;
      case Compare::kLeu:
        return unordered || a <= b;
      case Compare::kGtu:
        return unordered || a > b;
      case Compare::kGeu:
        return unordered || a >= b;
      case Compare::kNum:
        return !unordered;
      case Compare::kNan:
        return unordered;
    }
  } else {
    switch (kCompare) {
      case Compare::kEq:
        return a == b;
      case Compare::kNe:
        return a != b;
      case Compare::kLt:
        return a < b;
      case Compare::kLe:
        return a <= b;
      case Compare::kGt:
        return a > b;
      default:
        return a >= b;
    }
  }
  return false;
}

using Comparer = uint32_t (*)(Warp& w, const Instruction& i, uint32_t mask);

// The lanes for which the comparison of r[2] and r[3] holds.
template <Compare kCompare, typename T>
inline uint32_t compare_lanes(Warp& w, const Instruction& i, uint32_t mask) {
  const T* a = w.reg<T>(i.r[2]);
  const T* b = w.reg<T>(i.r[3]);
  uint32_t bits = 0;
  if (mask == kAllLanes) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      bits |= static_cast<uint32_t>(compare<kCompare, T>(a[lane], b[lane])) << lane;
  } else {
    for_lanes(mask, [&](unsigned lane) {
      bits |= static_cast<uint32_t>(compare<kCompare, T>(a[lane], b[lane])) << lane;
    });
  }
  return bits;
}

// For small floats and .ftz: converts to float.
template <Compare kCompare>
inline uint32_t compare_converted(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t bits = 0;
  const auto value = [&](uint32_t reg, unsigned lane) {
    if (i.from == Type::kF16) return half_value(w.reg<uint16_t>(reg)[lane]);
    if (i.from == Type::kBf16) return brain_value(w.reg<uint16_t>(reg)[lane]);
    return flushed(w.reg<float>(reg)[lane]);
  };
  for_lanes(mask, [&](unsigned lane) {
    bits |= static_cast<uint32_t>(compare<kCompare, float>(value(i.r[2], lane), value(i.r[3], lane))) << lane;
  });
  return bits;
}

template <Compare kCompare>
Comparer comparer(Type type, bool ftz) {
  if constexpr (kCompare <= Compare::kGe) {
    switch (type) {
      case Type::kB16:
      case Type::kU16:
        return compare_lanes<kCompare, uint16_t>;
      case Type::kB32:
      case Type::kU32:
        return compare_lanes<kCompare, uint32_t>;
      case Type::kB64:
      case Type::kU64:
        return compare_lanes<kCompare, uint64_t>;
      case Type::kS16:
        return compare_lanes<kCompare, int16_t>;
      case Type::kS32:
        return compare_lanes<kCompare, int32_t>;
      case Type::kS64:
        return compare_lanes<kCompare, int64_t>;
      default:
        break;
    }
  }
  switch (type) {
    case Type::kF32:
      return ftz ? compare_converted<kCompare> : compare_lanes<kCompare, float>;
    case Type::kF64:
      return compare_lanes<kCompare, double>;
    case Type::kF16:
    case Type::kBf16:
      return compare_converted<kCompare>;
    default:
      return nullptr;
  }
}

template <size_t... kIndex>
Comparer find_comparer(Compare which, Type type, bool ftz, std::index_sequence<kIndex...>) {
  Comparer found = nullptr;
  ((static_cast<size_t>(which) == kIndex ? (found = comparer<static_cast<Compare>(kIndex)>(type, ftz), 0)
                                         : 0),
   ...);
  return found;
}

struct Named {
  std::string_view name;
  Compare compare;
};
constexpr Named kFloatCompares[] = {
    {"eq", Compare::kEq},   {"ne", Compare::kNe},   {"lt", Compare::kLt},   {"le", Compare::kLe},
    {"gt", Compare::kGt},   {"ge", Compare::kGe},   {"equ", Compare::kEqu}, {"neu", Compare::kNeu},
    {"ltu", Compare::kLtu}, {"leu", Compare::kLeu}, {"gtu", Compare::kGtu}, {"geu", Compare::kGeu},
    {"num", Compare::kNum}, {"nan", Compare::kNan},
};
constexpr Named kUnsignedCompares[] = {
    {"lo", Compare::kLt}, {"ls", Compare::kLe}, {"hi", Compare::kGt}, {"hs", Compare::kGe}};

struct Choice {
  Compare compare;
  bool is_unsigned;
};

Choice take_compare(Decoder& d) {
  for (const Named& one : kFloatCompares) {
    if (d.take(one.name)) return {one.compare, false};
  }
  for (const Named& one : kUnsignedCompares) {
    if (d.take(one.name)) return {one.compare, true};
  }
  d.fail("{} needs a comparison", d.opcode());
}

constexpr uint8_t kCombineAnd = 1;
constexpr uint8_t kCombineOr = 2;
constexpr uint8_t kCombineXor = 3;
constexpr uint8_t kCombineNegated = 4;

uint8_t take_combination(Decoder& d) {
  return d.take("and") ? kCombineAnd : d.take("or") ? kCombineOr : d.take("xor") ? kCombineXor : 0;
}

uint32_t combine(uint32_t held, uint32_t with, uint8_t option) {
  if ((option & kCombineNegated) != 0) with = ~with;
  switch (option & 3) {
    case kCombineAnd:
      return held & with;
    case kCombineOr:
      return held | with;
    default:
      return held ^ with;
  }
}

// A comparison with a second result or a third operand. `immediate` has the comparer; the pool has p's
// partner and c.
void run_compare_more(Warp& w, const Instruction& i, uint32_t mask) {
  const auto run = reinterpret_cast<Comparer>(i.immediate);
  const uint32_t held = run(w, i, mask);
  const uint32_t* more = w.more(i);
  const uint32_t with = more[1] == kNone ? 0 : w.predicate(more[1]);
  const bool combines = (i.option & 3) != 0;
  const uint32_t first = combines ? combine(held, with, i.option) : held;
  const uint32_t second = combines ? combine(~held, with, i.option) : ~held;
  uint32_t& out = w.predicate(i.r[0]);
  out = (out & ~mask) | (first & mask);
  if (more[0] != kNone) {
    uint32_t& other = w.predicate(more[0]);
    other = (other & ~mask) | (second & mask);
  }
}

struct Comparison {
  Comparer run;
  uint8_t option;
};

Comparison take_comparison(Decoder& d, Instruction* i, size_t first, bool is_set) {
  const Choice choice = take_compare(d);
  uint8_t option = take_combination(d);
  const bool ftz = d.take("ftz");
  if (is_set) i->type = d.take_type_of({Type::kU32, Type::kS32, Type::kF32});
  const Type type = d.take_type();
  i->from = type;
  const Comparer run = find_comparer(choice.compare, type, ftz, std::make_index_sequence<14>{});
  const bool bits_order = is_bits(type) && choice.compare != Compare::kEq && choice.compare != Compare::kNe;
  if (run == nullptr || bits_order || (choice.is_unsigned && (is_signed(type) || is_float(type))) ||
      (ftz && type != Type::kF32)) {
    d.fail("{}: this comparison does not exist for .{}", d.opcode(), type_name(type));
  }
  d.need_operands(first + 2 + (option != 0 ? 1 : 0));
  i->r[2] = d.source(d.operand(first), type);
  i->r[3] = d.source(d.operand(first + 1), type);
  return {run, option};
}

void decode_setp(Decoder& d) {
  Instruction i;
  const Comparison comparison = take_comparison(d, &i, 1, false);
  uint32_t more[2] = {kNone, kNone};
  const Operand& out = d.operand(0);
  if (out.kind == Operand::Kind::kPair) {
    i.r[0] = d.predicate_destination(out.elements[0]);
    more[0] = d.predicate_destination(out.elements[1]);
  } else {
    i.r[0] = d.predicate_destination(out);
  }
  i.option = comparison.option;
  if (comparison.option != 0) {
    bool negated = false;
    more[1] = d.predicate_source(d.operand(3), &negated);
    if (negated) i.option |= kCombineNegated;
  }
  i.immediate = reinterpret_cast<int64_t>(comparison.run);
  i.more = d.pool(more);
  i.run = more[0] == kNone && more[1] == kNone
              ? [](Warp& w, const Instruction& at, uint32_t mask) {
                  uint32_t& value = w.predicate(at.r[0]);
                  value = (value & ~mask) | reinterpret_cast<Comparer>(at.immediate)(w, at, mask);
                }
              : run_compare_more;
  d.emit(i);
}

// Like setp, with a 32-bit register: all ones or 1.0 if true.
void decode_set(Decoder& d) {
  Instruction i;
  const Comparison comparison = take_comparison(d, &i, 1, true);
  i.r[0] = d.destination(d.operand(0), 4);
  i.option = comparison.option;
  if (comparison.option != 0) {
    bool negated = false;
    i.r[1] = d.predicate_source(d.operand(3), &negated);
    if (negated) i.option |= kCombineNegated;
  }
  i.immediate = reinterpret_cast<int64_t>(comparison.run);
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    uint32_t held = reinterpret_cast<Comparer>(at.immediate)(w, at, mask);
    if ((at.option & 3) != 0) held = combine(held, w.predicate(at.r[1]), at.option);
    const uint32_t yes = at.type == Type::kF32 ? 0x3f80'0000 : 0xffff'ffff;
    uint32_t* out = w.reg<uint32_t>(at.r[0]);
    for_lanes(mask, [&](unsigned lane) { out[lane] = (held >> lane & 1) != 0 ? yes : 0; });
  };
  d.emit(i);
}

template <typename T>
void run_select(Warp& w, const Instruction& i, uint32_t mask) {
  T* d = w.reg<T>(i.r[0]);
  const T* a = w.reg<T>(i.r[1]);
  const T* b = w.reg<T>(i.r[2]);
  const uint32_t chosen = i.option != 0 ? ~w.predicate(i.r[3]) : w.predicate(i.r[3]);
  if (mask == kAllLanes) {
    STRATA_INDEPENDENT_LANES
    for (unsigned lane = 0; lane < kLanes; ++lane) d[lane] = (chosen & (1u << lane)) != 0 ? a[lane] : b[lane];
  } else {
    for_lanes(mask, [&](unsigned lane) { d[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
  }
}

void decode_selp(Decoder& d) {
  const Type type = d.take_type();
  const unsigned bytes = type_bytes(type);
  if (bytes < 2 || type == Type::kPred) d.fail("selp does not support the type .{}", type_name(type));
  d.need_operands(4);
  Instruction i;
  bool negated = false;
  i.r[0] = d.destination(d.operand(0), bytes);
  i.r[1] = d.source(d.operand(1), type);
  i.r[2] = d.source(d.operand(2), type);
  i.r[3] = d.predicate_source(d.operand(3), &negated);
  i.option = negated ? 1 : 0;
  i.run = bytes == 2 ? run_select<uint16_t> : bytes == 4 ? run_select<uint32_t> : run_select<uint64_t>;
  d.emit(i);
}

template <typename T, typename C>
inline T select_by_sign(T a, T b, C c) {
  return c >= 0 ? a : b;
}

// a if c >= 0, else b; b if c is NaN.
void decode_slct(Decoder& d) {
  const bool ftz = d.take("ftz");
  const Type type = d.take_type();
  const Type by = d.take_type_of({Type::kS32, Type::kF32});
  const unsigned bytes = type_bytes(type);
  if (bytes < 2) d.fail("slct does not support the type .{}", type_name(type));
  if (ftz && by != Type::kF32) d.fail("{}: .ftz needs .f32", d.opcode());
  const auto make = [&]<typename T>(T) -> Handler {
    if (by == Type::kS32) return ternary<select_by_sign<T, int32_t>, T, T, T, int32_t>;
    // With .ftz a negative denormal counts as zero.
    if (ftz)
      return ternary<[](T a, T b, float c) { return select_by_sign<T, float>(a, b, flushed(c)); }, T, T, T,
                     float>;
    return ternary<select_by_sign<T, float>, T, T, T, float>;
  };
  d.emit(elementwise(d,
                     bytes == 2   ? make(uint16_t{})
                     : bytes == 4 ? make(uint32_t{})
                                  : make(uint64_t{}),
                     bytes, {type, type, by}));
}

constexpr Opcode kOpcodes[] = {
    {"setp", decode_setp}, {"set", decode_set}, {"selp", decode_selp}, {"slct", decode_slct}};

}  // namespace

std::span<const Opcode> selection_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
