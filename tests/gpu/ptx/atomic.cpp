// atom and red. The lanes of a warp update memory one after another.
#include <cmath>

#include "ptx/access.h"
#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/load_store.h"
#include "ptx/opcodes.h"
#include "ptx/traffic.h"

namespace strata::gpu_tests {
namespace {

enum class Update : uint8_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExchange, kCompare };

// Adds like a GPU: in global memory fp32 flushes denormals, and f64 preserves a signalling NaN.
float sum_of(float old, float b, bool global) {
  return canonical(global ? flushed(flushed(old) + flushed(b)) : old + b);
}
double sum_of(double old, double b, bool global) {
  if (old == old && b == b) return old + b;
  if (global) return b != b ? b : old;
  return quieted(old != old ? old : b);
}

template <typename T>
T updated(Update update, T old, T b, T c, bool global) {
  if constexpr (std::is_floating_point_v<T>) {
    return sum_of(old, b, global);
  } else {
    using U = std::make_unsigned_t<T>;
    switch (update) {
      case Update::kAdd:
        return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
      case Update::kMin:
        return std::min(old, b);
      case Update::kMax:
        return std::max(old, b);
      case Update::kInc:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case Update::kDec:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
      case Update::kAnd:
        return static_cast<T>(old & b);
      case Update::kOr:
        return static_cast<T>(old | b);
      case Update::kXor:
        return static_cast<T>(old ^ b);
      case Update::kExchange:
        return b;
      case Update::kCompare:
        return old == b ? c : old;
    }
    return old;
  }
}

template <typename T>
void run_update(Warp& w, const Instruction& i, uint32_t mask) {
  AccessTally tally(w, i, sizeof(T), Access::kUpdate);
  for_lanes(mask, [&](unsigned lane) {
    const Place place =
        access(w, i, lane, i.space, lane_address(w, i, i.r[1], lane), sizeof(T), Access::kUpdate);
    tally.add(lane, place);
    T old;
    std::memcpy(&old, place.data, sizeof old);
    const T c = i.r[3] == kNone ? T{} : w.reg<T>(i.r[3])[lane];
    const bool global = place.region->space == Space::kGlobal;
    const T value = updated<T>(static_cast<Update>(i.option), old, w.reg<T>(i.r[2])[lane], c, global);
    std::memcpy(place.data, &value, sizeof value);
    if (i.r[0] != kNone) w.reg<T>(i.r[0])[lane] = old;
  });
}

template <bool kHalfType, size_t kPairs>
void run_add_16(Warp& w, const Instruction& i, uint32_t mask) {
  AccessTally tally(w, i, 2 * kPairs, Access::kUpdate);
  for_lanes(mask, [&](unsigned lane) {
    const Place place =
        access(w, i, lane, i.space, lane_address(w, i, i.r[1], lane), 2 * kPairs, Access::kUpdate);
    tally.add(lane, place);
    uint16_t old[kPairs], value[kPairs];
    std::memcpy(old, place.data, sizeof old);
    for (size_t n = 0; n < kPairs; ++n) {
      const uint16_t b = w.reg<uint16_t>(i.r[2])[lane * kPairs + n];
      const float sum = kHalfType ? half_value(old[n]) + half_value(b) : brain_value(old[n]) + brain_value(b);
      value[n] = static_cast<uint16_t>(narrow(sum, kHalfType ? kHalf : kBrain, Rounding::kNearest));
    }
    std::memcpy(place.data, value, sizeof value);
    if (i.r[0] != kNone) std::memcpy(w.reg<uint16_t>(i.r[0]) + lane * kPairs, old, sizeof old);
  });
}

Update take_update(Decoder& d) {
  constexpr std::pair<const char*, Update> kNames[] = {
      {"add", Update::kAdd},       {"min", Update::kMin},     {"max", Update::kMax}, {"inc", Update::kInc},
      {"dec", Update::kDec},       {"and", Update::kAnd},     {"or", Update::kOr},   {"xor", Update::kXor},
      {"exch", Update::kExchange}, {"cas", Update::kCompare},
  };
  for (const auto& [name, update] : kNames) {
    if (d.take(name)) return update;
  }
  d.fail("{}: this operation is not implemented", d.opcode());
}

Handler handler_for(Update update, Type type) {
  const bool add = update == Update::kAdd;
  switch (type) {
    case Type::kU32:
      return update <= Update::kDec ? run_update<uint32_t> : nullptr;
    case Type::kS32:
      return update <= Update::kMax ? run_update<int32_t> : nullptr;
    case Type::kU64:
      return update <= Update::kMax ? run_update<uint64_t> : nullptr;
    case Type::kS64:
      return update <= Update::kMax ? run_update<int64_t> : nullptr;
    case Type::kB16:
      return update == Update::kCompare ? run_update<uint16_t> : nullptr;
    case Type::kB32:
      return update >= Update::kAnd ? run_update<uint32_t> : nullptr;
    case Type::kB64:
      return update >= Update::kAnd ? run_update<uint64_t> : nullptr;
    case Type::kF32:
      return add ? run_update<float> : nullptr;
    case Type::kF64:
      return add ? run_update<double> : nullptr;
    case Type::kF16:
      return add ? run_add_16<true, 1> : nullptr;
    case Type::kBf16:
      return add ? run_add_16<false, 1> : nullptr;
    case Type::kF16x2:
      return add ? run_add_16<true, 2> : nullptr;
    case Type::kBf16x2:
      return add ? run_add_16<false, 2> : nullptr;
    default:
      return nullptr;
  }
}

template <bool kReturns>
void decode_atomic(Decoder& d) {
  Instruction i;
  i.strong = true;
  if (d.next_modifier() == "async") d.fail("{} is not implemented (mbarrier objects)", d.opcode());
  if (!d.take("relaxed") && !d.take("acquire") && !d.take("release")) d.take("acq_rel");
  take_scope(d);
  i.space = take_optional_space(d);
  if (i.space != Space::kGeneric && i.space != Space::kGlobal && i.space != Space::kShared)
    d.fail("{}: not supported in this space", d.opcode());
  const Update update = take_update(d);
  i.option = static_cast<uint8_t>(update);
  const bool noftz = d.take("noftz");
  const Type type = d.take_type();
  const bool small =
      type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
  if (noftz != small) d.fail("{}: .noftz belongs to small floats", d.opcode());
  i.run = handler_for(update, type);
  if (i.run == nullptr) d.fail("{}: this operation does not exist for .{}", d.opcode(), type_name(type));
  if (!kReturns && update >= Update::kExchange) d.fail("{}: red cannot exchange", d.opcode());
  const size_t first = kReturns ? 1 : 0;
  d.need_operands(first + (update == Update::kCompare ? 3 : 2));
  if (kReturns) i.r[0] = d.destination(d.operand(0), type_bytes(type));
  d.address(d.operand(first), &i, 1);
  i.r[2] = d.source(d.operand(first + 1), type);
  if (update == Update::kCompare) i.r[3] = d.source(d.operand(first + 2), type);
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {{"atom", decode_atomic<true>}, {"red", decode_atomic<false>}};

}  // namespace

std::span<const Opcode> atomic_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
