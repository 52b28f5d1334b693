// Instructions of a whole warp: shfl, vote, match, redux, activemask, elect.
#include <fmt/core.h>

#include <algorithm>

#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

// r[3] is the mask of member lanes; the executor waits until all have arrived.
void take_members(Decoder& d, Instruction* i, const Operand& operand) {
  i->kind = Instruction::Kind::kWarpSync;
  i->r[3] = d.source(operand, Type::kB32);
}

enum class Shuffle : uint8_t { kUp, kDown, kButterfly, kIndex };

// r: d, a, b, members; pool: p or kNone, c.
void run_shuffle(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t* more = w.more(i);
  uint32_t* d = w.reg<uint32_t>(i.r[0]);
  const uint32_t* b = w.reg<uint32_t>(i.r[2]);
  const uint32_t* c = w.reg<uint32_t>(more[1]);
  uint32_t source[kLanes];
  std::memcpy(source, w.reg<uint32_t>(i.r[1]), sizeof source);
  uint32_t in_range = 0;
  for_lanes(mask, [&](unsigned lane) {
    const unsigned by = b[lane] & 31;
    const unsigned clamp = c[lane] & 31;
    const unsigned segment = c[lane] >> 8 & 31;
    const unsigned highest = (lane & segment) | (clamp & ~segment);
    const unsigned lowest = lane & segment;
    int from = 0;
    bool inside = false;
    switch (static_cast<Shuffle>(i.option)) {
      case Shuffle::kUp:
        from = static_cast<int>(lane) - static_cast<int>(by);
        inside = from >= static_cast<int>(highest);
        break;
      case Shuffle::kDown:
        from = static_cast<int>(lane + by);
        inside = from <= static_cast<int>(highest);
        break;
      case Shuffle::kButterfly:
        from = static_cast<int>(lane ^ by);
        inside = from <= static_cast<int>(highest);
        break;
      case Shuffle::kIndex:
        from = static_cast<int>(lowest | (by & ~segment));
        inside = from <= static_cast<int>(highest);
        break;
    }
    if (!inside) from = static_cast<int>(lane);
    if ((mask >> from & 1) == 0) {
      w.fail(Fault::kMask, i, lane,
             fmt::format("lane {} reads lane {}, which does not take part", lane, from));
    }
    d[lane] = source[from];
    in_range |= static_cast<uint32_t>(inside) << lane;
  });
  if (more[0] != kNone) {
    uint32_t& p = w.predicate(more[0]);
    p = (p & ~mask) | in_range;
  }
}

void decode_shfl(Decoder& d) {
  d.need("sync");
  Instruction i;
  if (d.take("up"))
    i.option = static_cast<uint8_t>(Shuffle::kUp);
  else if (d.take("down"))
    i.option = static_cast<uint8_t>(Shuffle::kDown);
  else if (d.take("bfly"))
    i.option = static_cast<uint8_t>(Shuffle::kButterfly);
  else if (d.take("idx"))
    i.option = static_cast<uint8_t>(Shuffle::kIndex);
  else
    d.fail("{} needs a mode", d.opcode());
  d.take_type_of({Type::kB32});
  d.need_operands(5);
  const Operand& out = d.operand(0);
  uint32_t more[2] = {kNone, 0};
  if (out.kind == Operand::Kind::kPair) {
    i.r[0] = d.destination(out.elements[0], 4);
    more[0] = d.predicate_destination(out.elements[1]);
  } else {
    i.r[0] = d.destination(out, 4);
  }
  i.r[1] = d.source(d.operand(1), Type::kB32);
  i.r[2] = d.source(d.operand(2), Type::kU32);
  more[1] = d.source(d.operand(3), Type::kU32);
  i.more = d.pool(more);
  take_members(d, &i, d.operand(4));
  i.run = run_shuffle;
  d.emit(i);
}

enum class Vote : uint8_t { kAll, kAny, kUniform, kBallot };

void run_vote(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t yes = w.predicate(i.r[1]);
  if (i.bytes != 0) yes = ~yes;
  yes &= mask;
  if (static_cast<Vote>(i.option) == Vote::kBallot) {
    uint32_t* d = w.reg<uint32_t>(i.r[0]);
    for_lanes(mask, [&](unsigned lane) { d[lane] = yes; });
    return;
  }
  const bool holds = i.option == static_cast<uint8_t>(Vote::kAll)   ? yes == mask
                     : i.option == static_cast<uint8_t>(Vote::kAny) ? yes != 0
                                                                    : yes == mask || yes == 0;
  uint32_t& out = w.predicate(i.r[0]);
  out = (out & ~mask) | (holds ? mask : 0);
}

void decode_vote(Decoder& d) {
  d.need("sync");
  Instruction i;
  const bool ballot = d.take("ballot");
  if (ballot)
    i.option = static_cast<uint8_t>(Vote::kBallot);
  else if (d.take("all"))
    i.option = static_cast<uint8_t>(Vote::kAll);
  else if (d.take("any"))
    i.option = static_cast<uint8_t>(Vote::kAny);
  else if (d.take("uni"))
    i.option = static_cast<uint8_t>(Vote::kUniform);
  else
    d.fail("{} needs a mode", d.opcode());
  d.take_type_of({ballot ? Type::kB32 : Type::kPred});
  d.need_operands(3);
  i.r[0] = ballot ? d.destination(d.operand(0), 4) : d.predicate_destination(d.operand(0));
  bool negated = false;
  i.r[1] = d.predicate_source(d.operand(1), &negated);
  i.bytes = negated ? 1 : 0;
  take_members(d, &i, d.operand(2));
  i.run = run_vote;
  d.emit(i);
}

template <typename T>
void run_match_any(Warp& w, const Instruction& i, uint32_t mask) {
  const T* a = w.reg<T>(i.r[1]);
  uint32_t out[kLanes] = {};
  for_lanes(mask, [&](unsigned lane) {
    for_lanes(mask,
              [&](unsigned other) { out[lane] |= static_cast<uint32_t>(a[lane] == a[other]) << other; });
  });
  uint32_t* d = w.reg<uint32_t>(i.r[0]);
  for_lanes(mask, [&](unsigned lane) { d[lane] = out[lane]; });
}

template <typename T>
void run_match_all(Warp& w, const Instruction& i, uint32_t mask) {
  const T* a = w.reg<T>(i.r[1]);
  const T first = a[std::countr_zero(mask)];
  bool same = true;
  for_lanes(mask, [&](unsigned lane) { same = same && a[lane] == first; });
  uint32_t* d = w.reg<uint32_t>(i.r[0]);
  for_lanes(mask, [&](unsigned lane) { d[lane] = same ? mask : 0; });
  if (i.r[2] != kNone) {
    uint32_t& p = w.predicate(i.r[2]);
    p = (p & ~mask) | (same ? mask : 0);
  }
}

void decode_match(Decoder& d) {
  const bool any = d.take("any");
  if (!any) d.need("all");
  d.need("sync");
  const Type type = d.take_type_of({Type::kB32, Type::kB64});
  const bool wide = type_bytes(type) == 8;
  d.need_operands(3);
  Instruction i;
  const Operand& out = d.operand(0);
  if (!any && out.kind == Operand::Kind::kPair) {
    i.r[0] = d.destination(out.elements[0], 4);
    i.r[2] = d.predicate_destination(out.elements[1]);
  } else {
    i.r[0] = d.destination(out, 4);
  }
  i.r[1] = d.source(d.operand(1), type);
  take_members(d, &i, d.operand(2));
  if (any)
    i.run = wide ? run_match_any<uint64_t> : run_match_any<uint32_t>;
  else
    i.run = wide ? run_match_all<uint64_t> : run_match_all<uint32_t>;
  d.emit(i);
}

enum class Reduce : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <typename T>
T reduced(Reduce how, T a, T b) {
  switch (how) {
    case Reduce::kAdd:
      return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    case Reduce::kMin:
      return std::min(a, b);
    case Reduce::kMax:
      return std::max(a, b);
    case Reduce::kAnd:
      return a & b;
    case Reduce::kOr:
      return a | b;
    case Reduce::kXor:
      return a ^ b;
  }
  return a;
}

template <typename T>
void run_reduce(Warp& w, const Instruction& i, uint32_t mask) {
  const T* a = w.reg<T>(i.r[1]);
  const auto first = static_cast<unsigned>(std::countr_zero(mask));
  T value = a[first];
  for_lanes(mask & (mask - 1),
            [&](unsigned lane) { value = reduced<T>(static_cast<Reduce>(i.option), value, a[lane]); });
  T* d = w.reg<T>(i.r[0]);
  for_lanes(mask, [&](unsigned lane) { d[lane] = value; });
}

void decode_redux(Decoder& d) {
  d.need("sync");
  Instruction i;
  uint8_t which = 0;
  for (const char* name : {"add", "min", "max", "and", "or", "xor"}) {
    if (d.take(name)) break;
    ++which;
  }
  if (which == 6) d.fail("{}: this operation is not implemented", d.opcode());
  i.option = which;
  const bool bits = which >= static_cast<uint8_t>(Reduce::kAnd);
  const Type type = bits ? d.take_type_of({Type::kB32}) : d.take_type_of({Type::kU32, Type::kS32});
  d.need_operands(3);
  i.r[0] = d.destination(d.operand(0), 4);
  i.r[1] = d.source(d.operand(1), type);
  take_members(d, &i, d.operand(2));
  i.run = type == Type::kS32 ? run_reduce<int32_t> : run_reduce<uint32_t>;
  d.emit(i);
}

void decode_activemask(Decoder& d) {
  d.take_type_of({Type::kB32});
  d.need_operands(1);
  Instruction i;
  i.r[0] = d.destination(d.operand(0), 4);
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    uint32_t* out = w.reg<uint32_t>(at.r[0]);
    for_lanes(mask, [&](unsigned lane) { out[lane] = mask; });
  };
  d.emit(i);
}

// Elects the lowest member.
void decode_elect(Decoder& d) {
  d.need("sync");
  d.need_operands(2);
  const Operand& out = d.operand(0);
  if (out.kind != Operand::Kind::kPair) d.fail("{} needs d|p", d.opcode());
  Instruction i;
  i.r[0] = d.destination(out.elements[0], 4);
  i.r[1] = d.predicate_destination(out.elements[1]);
  take_members(d, &i, d.operand(1));
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const auto leader = static_cast<uint32_t>(std::countr_zero(mask));
    uint32_t* d_lanes = w.reg<uint32_t>(at.r[0]);
    for_lanes(mask, [&](unsigned lane) { d_lanes[lane] = leader; });
    uint32_t& p = w.predicate(at.r[1]);
    p = (p & ~mask) | 1u << leader;
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {{"shfl", decode_shfl},
                               {"vote", decode_vote},
                               {"match", decode_match},
                               {"redux", decode_redux},
                               {"activemask", decode_activemask},
                               {"elect", decode_elect}};

}  // namespace

std::span<const Opcode> warp_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
