// ld, st, prefetch and fences.
#include "ptx/load_store.h"
#include "ptx/access.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"
#include "ptx/traffic.h"

namespace strata::gpu_tests {

bool take_scope(Decoder& d) {
  if (d.next_modifier() == "cluster") d.fail("{}: clusters are not implemented", d.opcode());
  return d.take("cta") || d.take("gpu") || d.take("sys");
}

Space take_optional_space(Decoder& d) {
  if (d.next_modifier() == "shared::cluster") d.fail("{}: clusters are not implemented", d.opcode());
  if (d.take("global")) return Space::kGlobal;
  if (d.take("shared") || d.take("shared::cta")) return Space::kShared;
  if (d.take("local")) return Space::kLocal;
  if (d.take("const")) return Space::kConst;
  if (d.take("param") || d.take("param::entry") || d.take("param::func")) return Space::kParam;
  return Space::kGeneric;
}

bool take_cache_hint(Decoder& d) {
  for (const char* name :
       {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
        "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::evict_normal", "L2::evict_first",
        "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"}) {
    if (d.take(name)) return true;
  }
  return false;
}

namespace {

void count_bytes(Warp& w, Space space, uint64_t bytes) {
  Counters& counters = *w.block->launch->counters;
  (space == Space::kShared ? counters.shared_bytes : counters.global_bytes) += bytes;
}

// The value of an element, extended to the register's width.
template <typename T>
void put(std::byte* reg, unsigned width, unsigned lane, const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  const auto wide = static_cast<uint64_t>(static_cast<int64_t>(value));
  std::memcpy(reg + lane * width, &wide, width);
}

void put_extended(const Instruction& i, std::byte* reg, unsigned lane, const std::byte* from) {
  const unsigned width = i.option;
  const bool negative = is_signed(i.type);
  switch (i.bytes) {
    case 1:
      negative ? put<int8_t>(reg, width, lane, from) : put<uint8_t>(reg, width, lane, from);
      break;
    case 2:
      negative ? put<int16_t>(reg, width, lane, from) : put<uint16_t>(reg, width, lane, from);
      break;
    default:
      negative ? put<int32_t>(reg, width, lane, from) : put<uint32_t>(reg, width, lane, from);
      break;
  }
}

void run_load(Warp& w, const Instruction& i, uint32_t mask) {
  const unsigned bytes = unsigned{i.bytes} * i.vector;
  const uint32_t* registers = w.more(i);
  uint64_t total = 0;
  AccessTally tally(w, i, bytes, Access::kRead);
  for_lanes(mask, [&](unsigned lane) {
    const Place place = access(w, i, lane, i.space, lane_address(w, i, i.r[1], lane), bytes, Access::kRead);
    tally.add(lane, place);
    for (unsigned n = 0; n < i.vector; ++n) {
      std::byte* reg = w.reg<std::byte>(registers[n]);
      const std::byte* from = place.data + n * i.bytes;
      if (i.option == i.bytes) [[likely]] {
        // Compile-time sizes: a call per lane would cost more than the copy.
        if (i.bytes == 4)
          std::memcpy(reg + lane * 4, from, 4);
        else if (i.bytes == 2)
          std::memcpy(reg + lane * 2, from, 2);
        else
          std::memcpy(reg + lane * 8, from, 8);
      } else {
        put_extended(i, reg, lane, from);
      }
    }
    total += bytes;
  });
  count_bytes(w, i.space, total);
}

void run_store(Warp& w, const Instruction& i, uint32_t mask) {
  const unsigned bytes = unsigned{i.bytes} * i.vector;
  const uint32_t* registers = w.more(i);
  uint64_t total = 0;
  AccessTally tally(w, i, bytes, Access::kWrite);
  for_lanes(mask, [&](unsigned lane) {
    const Place place = access(w, i, lane, i.space, lane_address(w, i, i.r[1], lane), bytes, Access::kWrite);
    tally.add(lane, place);
    for (unsigned n = 0; n < i.vector; ++n) {
      const std::byte* reg = w.reg<std::byte>(registers[n]) + lane * i.option;
      std::byte* to = place.data + n * i.bytes;
      if (i.bytes == 4)
        std::memcpy(to, reg, 4);
      else if (i.bytes == 2)
        std::memcpy(to, reg, 2);
      else if (i.bytes == 8)
        std::memcpy(to, reg, 8);
      else
        *to = *reg;
    }
    total += bytes;
  });
  count_bytes(w, i.space, total);
}

// Strong accesses of a scope do not race with one another.
bool take_semantics(Decoder& d, bool load) {
  if (d.take("weak")) return false;
  if (d.take("volatile")) return true;
  if (d.take("relaxed") || d.take(load ? "acquire" : "release")) {
    if (!take_scope(d)) d.fail("{} needs a scope", d.opcode());
    return true;
  }
  if (d.take("mmio")) d.fail("{}: .mmio is not implemented", d.opcode());
  return false;
}

template <bool kLoad>
void decode_load_store(Decoder& d) {
  Instruction i;
  i.strong = take_semantics(d, kLoad);
  i.space = take_optional_space(d);
  while (take_cache_hint(d)) {
  }
  if (d.take("v2"))
    i.vector = 2;
  else if (d.take("v4"))
    i.vector = 4;
  else if (d.take("v8"))
    i.vector = 8;
  i.type = d.take_type();
  i.bytes = static_cast<uint8_t>(type_bytes(i.type));
  if (i.bytes == 0 || i.bytes * i.vector > 32) d.fail("{}: this size is not implemented", d.opcode());
  if (!kLoad && i.space == Space::kConst) d.fail("{}: constants cannot be stored", d.opcode());
  d.need_operands(2);
  const Operand& data = d.operand(kLoad ? 0 : 1);
  d.address(d.operand(kLoad ? 1 : 0), &i, 1);
  std::vector<const Operand*> elements{&data};
  if (i.vector > 1) {
    if (data.kind != Operand::Kind::kVector || data.elements.size() != i.vector)
      d.fail("expected a vector of {}", i.vector);
    elements.clear();
    for (const Operand& element : data.elements) elements.push_back(&element);
  } else if (data.kind == Operand::Kind::kVector && data.elements.size() == 1) {
    elements[0] = &data.elements[0];
  }
  std::vector<uint32_t> registers;
  unsigned width = 0;
  for (const Operand* element : elements) {
    unsigned bytes = 0;
    // 8-bit immediates are stored in 16 bits: no register is narrower.
    const Type type = i.bytes == 1 ? Type::kB16 : i.type;
    registers.push_back(kLoad ? d.loose_destination(*element, std::max<unsigned>(i.bytes, 2), &bytes)
                              : d.loose_source(*element, type, &bytes));
    if (bytes < i.bytes || (width != 0 && width != bytes))
      d.fail("{}: the widths of the registers do not fit", d.opcode());
    width = bytes;
  }
  i.more = d.pool(registers);
  i.option = static_cast<uint8_t>(width);
  i.run = kLoad ? run_load : run_store;
  d.emit(i);
}

void run_nothing(Warp&, const Instruction&, uint32_t) {}

void decode_prefetch(Decoder& d) {
  Instruction i;
  i.space = take_optional_space(d);
  if (!d.take("L1") && !d.take("L2") && !d.take("L2::evict_last") && !d.take("L2::evict_normal"))
    d.fail("{} needs a level", d.opcode());
  d.need_operands(1);
  d.address(d.operand(0), &i, 1);
  i.run = run_nothing;
  d.emit(i);
}

// Blocks run one after another and warps take turns, so a fence orders nothing. The race check does not
// accept fences either, only barriers and atomics.
void decode_fence(Decoder& d) {
  if (d.next_modifier() == "proxy" || d.next_modifier() == "mbarrier_init")
    d.fail("{} is not implemented (TMA)", d.opcode());
  if (!d.take("sc") && !d.take("acq_rel") && !d.take("acquire")) d.take("release");
  if (!take_scope(d)) d.fail("{} needs a scope", d.opcode());
  d.need_operands(0);
  Instruction i;
  i.run = run_nothing;
  d.emit(i);
}

void decode_membar(Decoder& d) {
  if (!d.take("cta") && !d.take("gl") && !d.take("sys")) d.fail("{} needs a level", d.opcode());
  d.need_operands(0);
  Instruction i;
  i.run = run_nothing;
  d.emit(i);
}

void decode_nanosleep(Decoder& d) {
  d.take_type_of({Type::kU32});
  d.need_operands(1);
  Instruction i;
  i.r[1] = d.source(d.operand(0), Type::kU32);
  i.run = run_nothing;
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {
    {"ld", decode_load_store<true>}, {"ldu", decode_load_store<true>}, {"st", decode_load_store<false>},
    {"prefetch", decode_prefetch},   {"prefetchu", decode_prefetch},   {"fence", decode_fence},
    {"membar", decode_membar},       {"nanosleep", decode_nanosleep},
};

}  // namespace

std::span<const Opcode> memory_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
