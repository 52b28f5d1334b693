// mov, with packing and unpacking of vectors, and reads of the clock.
#include <array>

#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

template <typename T>
constexpr T same(T a) {
  return a;
}

Handler copy_handler(unsigned bytes) {
  return bytes == 2   ? unary<same<uint16_t>, uint16_t, uint16_t>
         : bytes == 4 ? unary<same<uint32_t>, uint32_t, uint32_t>
                      : unary<same<uint64_t>, uint64_t, uint64_t>;
}

void decode_predicate_move(Decoder& d) {
  d.need_operands(2);
  Instruction i;
  bool negated = false;
  i.r[0] = d.predicate_destination(d.operand(0));
  i.r[1] = d.predicate_source(d.operand(1), &negated);
  i.option = negated ? 1 : 0;
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    const uint32_t value = at.option != 0 ? ~w.predicate(at.r[1]) : w.predicate(at.r[1]);
    uint32_t& out = w.predicate(at.r[0]);
    out = (out & ~mask) | (value & mask);
  };
  d.emit(i);
}

// `vector` parts of `bytes` bytes each, lowest first; their registers are in the pool.
void run_pack(Warp& w, const Instruction& i, uint32_t mask) {
  std::byte* whole = w.reg<std::byte>(i.r[0]);
  const unsigned width = unsigned{i.bytes} * i.vector;
  for (unsigned part = 0; part < i.vector; ++part) {
    const std::byte* from = w.reg<std::byte>(w.more(i)[part]);
    for_lanes(mask, [&](unsigned lane) {
      std::memcpy(whole + lane * width + part * i.bytes, from + lane * i.bytes, i.bytes);
    });
  }
}

void run_unpack(Warp& w, const Instruction& i, uint32_t mask) {
  const unsigned width = unsigned{i.bytes} * i.vector;
  // A part may be the register of the whole.
  std::array<std::byte, kLanes * 8> whole;
  std::memcpy(whole.data(), w.reg<std::byte>(i.r[1]), kLanes * width);
  for (unsigned part = 0; part < i.vector; ++part) {
    std::byte* to = w.reg<std::byte>(w.more(i)[part]);
    for_lanes(mask, [&](unsigned lane) {
      std::memcpy(to + lane * i.bytes, whole.data() + lane * width + part * i.bytes, i.bytes);
    });
  }
}

Type part_type(Decoder& d, unsigned bytes, size_t count) {
  if (count != 2 && count != 4) d.fail("a vector of {} cannot be moved", count);
  switch (bytes / count) {
    case 2:
      return Type::kB16;
    case 4:
      return Type::kB32;
    default:
      d.fail("parts of {} bytes are not implemented", bytes / count);
  }
}

bool decode_clock(Decoder& d, Type type) {
  const std::string& name = d.operand(1).name;
  const bool wide = name == "%clock64" || name == "%globaltimer";
  if (!wide && name != "%clock" && name != "%clock_hi" && name != "%globaltimer_lo" &&
      name != "%globaltimer_hi")
    return false;
  if (type_bytes(type) != (wide ? 8 : 4)) d.fail("{} has {} bits", name, wide ? 64 : 32);
  Instruction i;
  i.r[0] = d.destination(d.operand(0), type_bytes(type));
  i.bytes = static_cast<uint8_t>(type_bytes(type));
  i.option = name.ends_with("hi") ? 32 : 0;
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    // Executed instructions of the launch serve as clocks.
    const uint64_t value = w.block->launch->executed >> at.option;
    for_lanes(mask, [&](unsigned lane) {
      std::memcpy(w.reg<std::byte>(at.r[0]) + lane * at.bytes, &value, at.bytes);
    });
  };
  d.emit(i);
  return true;
}

void decode_mov(Decoder& d) {
  const Type type = d.take_type();
  if (type == Type::kPred) {
    decode_predicate_move(d);
    return;
  }
  const unsigned bytes = type_bytes(type);
  if (bytes < 2) d.fail("mov does not support the type .{}", type_name(type));
  d.need_operands(2);
  if (decode_clock(d, type)) return;
  const Operand& to = d.operand(0);
  const Operand& from = d.operand(1);
  Instruction i;
  if (from.kind == Operand::Kind::kVector) {
    const size_t count = from.elements.size();
    const Type part = part_type(d, bytes, count);
    i.r[0] = d.destination(to, bytes);
    i.more = d.pool(d.vector_sources(from, part, count));
    i.bytes = static_cast<uint8_t>(type_bytes(part));
    i.vector = static_cast<uint8_t>(count);
    // A part can be the destination's register only if both have the same width, which they do not.
    i.run = run_pack;
  } else if (to.kind == Operand::Kind::kVector) {
    const size_t count = to.elements.size();
    const Type part = part_type(d, bytes, count);
    i.r[1] = d.source(from, type);
    i.more = d.pool(d.vector_destinations(to, type_bytes(part), count));
    i.bytes = static_cast<uint8_t>(type_bytes(part));
    i.vector = static_cast<uint8_t>(count);
    i.run = run_unpack;
  } else {
    i.r[0] = d.destination(to, bytes);
    i.r[1] = d.source(from, type);
    i.run = copy_handler(bytes);
  }
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {{"mov", decode_mov}};

}  // namespace

std::span<const Opcode> move_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
