// Barriers of a block and of a warp, and trap. The waiting itself is in run.cpp.
#include "ptx/lanes.h"
#include "ptx/opcodes.h"

namespace strata::gpu_tests {
namespace {

void decode_warp_sync(Decoder& d) {
  d.need("sync");
  d.need_operands(1);
  Instruction i;
  i.kind = Instruction::Kind::kWarpSync;
  i.r[3] = d.source(d.operand(0), Type::kB32);
  // Orders the memory accesses of its lanes.
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    if (++w.clocks[w.index] >= Stamp::kMaxClock) {
      w.fail(Fault::kLimit, at, static_cast<unsigned>(std::countr_zero(mask)),
             fmt::format("more than {} synchronisations of a warp", Stamp::kMaxClock));
    }
  };
  d.emit(i);
}

// r: result or kNone, barrier, count or kNone, predicate or kNone.
void decode_barrier(Decoder& d) {
  const bool is_bar = d.statement().name == "bar";
  if (is_bar && d.take("warp")) {
    decode_warp_sync(d);
    return;
  }
  if (d.next_modifier() == "cluster") d.fail("{}: clusters are not implemented", d.opcode());
  d.take("cta");
  Instruction i;
  i.kind = Instruction::Kind::kBarrier;
  using Kind = Instruction::BarrierKind;
  bool reduces = false;
  if (d.take("arrive")) {
    i.barrier = Kind::kArrive;
  } else if (d.take("red")) {
    reduces = true;
    i.barrier = d.take("popc") ? Kind::kPopc : d.take("and") ? Kind::kAnd : Kind::kOr;
    if (i.barrier == Kind::kOr) d.need("or");
  } else {
    d.need("sync");
  }
  // bar is barrier.aligned.
  i.aligned = d.take("aligned") || is_bar;
  if (reduces) d.take_type_of({i.barrier == Kind::kPopc ? Type::kU32 : Type::kPred});
  size_t at = 0;
  if (reduces) {
    d.need_operands(3, 4);
    i.r[0] =
        i.barrier == Kind::kPopc ? d.destination(d.operand(0), 4) : d.predicate_destination(d.operand(0));
    at = 1;
  } else if (i.barrier == Kind::kArrive) {
    d.need_operands(2);
  } else {
    d.need_operands(1, 2);
  }
  i.r[1] = d.source(d.operand(at), Type::kU32);
  const size_t last = d.operand_count() - (reduces ? 1 : 0);
  if (at + 1 < last) i.r[2] = d.source(d.operand(at + 1), Type::kU32);
  if (reduces) {
    bool negated = false;
    i.r[3] = d.predicate_source(d.operand(last), &negated);
    i.option = negated ? 1 : 0;
  }
  d.emit(i);
}

void decode_trap(Decoder& d) {
  d.need_operands(0);
  Instruction i;
  i.run = [](Warp& w, const Instruction& at, uint32_t mask) {
    w.fail(Fault::kTrap, at, static_cast<unsigned>(std::countr_zero(mask)), "the kernel trapped");
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {
    {"bar", decode_barrier}, {"barrier", decode_barrier}, {"trap", decode_trap}, {"brkpt", decode_trap}};

}  // namespace

std::span<const Opcode> barrier_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
