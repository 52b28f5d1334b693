// cp.async: copies from global to shared memory that complete at the wait, the latest time allowed.
#include "ptx/async.h"

#include <fmt/core.h>

#include <algorithm>

#include "ptx/access.h"
#include "ptx/lanes.h"
#include "ptx/load_store.h"
#include "ptx/opcodes.h"
#include "ptx/traffic.h"

namespace strata::gpu_tests {

void complete_copies(Warp& w, uint32_t mask, uint32_t keep, bool uncommitted_too) {
  const bool races = w.block->launch->checks.races;
  auto kept = w.copies.begin();
  for (auto at = w.copies.begin(); at != w.copies.end(); ++at) {
    const AsyncCopy copy = *at;
    const uint32_t committed = w.copy_groups[copy.lane];
    const bool done = copy.group >= committed ? uncommitted_too : copy.group + keep < committed;
    if ((mask >> copy.lane & 1) == 0 || !done) {
      *kept++ = copy;
      continue;
    }
    // The source is read only now, so that overwriting it since the issue has an effect.
    const Instruction& issued = w.kernel->code[copy.at];
    const Place to = locate(w, issued, copy.lane, Space::kShared, copy.to, copy.bytes);
    std::array<std::byte, 16> bytes{};
    if (copy.from_bytes != 0) {
      const Place from = locate(w, issued, copy.lane, Space::kGlobal, copy.from, copy.bytes);
      if (races) check_race(w, issued, copy.lane, from, copy.bytes, Access::kRead);
      std::memcpy(bytes.data(), from.data, copy.from_bytes);
    }
    // The waiting thread makes the bytes visible: others need a barrier after this.
    if (races) check_race(w, issued, copy.lane, to, copy.bytes, Access::kWrite);
    std::memcpy(to.data, bytes.data(), copy.bytes);
    to.region->mark(to.offset, copy.bytes, true);
  }
  w.copies.erase(kept, w.copies.end());
}

namespace {

// r: destination, source, bytes of the source or kNone. `bytes`: of the destination.
void run_copy(Warp& w, const Instruction& i, uint32_t mask) {
  const bool races = w.block->launch->checks.races;
  AccessTally tally(w, i, i.bytes, Access::kRead);
  for_lanes(mask, [&](unsigned lane) {
    // The low word of the address: shared memory is small.
    const uint64_t to_address =
        w.reg<uint32_t>(i.r[0])[lane * (i.vector / 4)] + w.reg<uint32_t>(w.more(i)[0])[lane];
    uint32_t from_bytes = i.bytes;
    if (i.r[2] != kNone) from_bytes = w.reg<uint32_t>(i.r[2])[lane];
    if (i.r[3] != kNone && (w.predicate(i.r[3]) >> lane & 1) != 0) from_bytes = 0;
    if (from_bytes > i.bytes) {
      w.fail(Fault::kOutOfBounds, i, lane, fmt::format("copies {} bytes into {}", from_bytes, i.bytes),
             to_address);
    }
    const Place to = locate(w, i, lane, Space::kShared, to_address & 0xffff'ffff, i.bytes);
    tally.add(lane, to);
    const uint64_t from_address = lane_address(w, i, i.r[1], lane);
    if (from_bytes != 0) {
      const Place from = locate(w, i, lane, Space::kGlobal, from_address, i.bytes);
      if (races) check_race(w, i, lane, from, i.bytes, Access::kRead);
      check_written(w, i, lane, from, from_bytes);
      tally.add(lane, from);
    } else if (from_address % i.bytes != 0) {
      w.fail(Fault::kMisaligned, i, lane,
             fmt::format("source {:#x} is not aligned to {} bytes", from_address, i.bytes), from_address);
    }
    // The copy may complete from now on: earlier readers must be done.
    if (races) check_race(w, i, lane, to, i.bytes, Access::kWrite);
    to.region->mark(to.offset, i.bytes, false);
    w.copies.push_back({from_address, static_cast<uint32_t>(to.offset), w.copy_groups[lane], w.at(i),
                        static_cast<uint8_t>(lane), i.bytes, static_cast<uint8_t>(from_bytes)});
    w.block->launch->counters->global_bytes += from_bytes;
    w.block->launch->counters->shared_bytes += i.bytes;
  });
}

void run_commit(Warp& w, const Instruction&, uint32_t mask) {
  for_lanes(mask, [&](unsigned lane) { ++w.copy_groups[lane]; });
}

void run_wait(Warp& w, const Instruction& i, uint32_t mask) {
  complete_copies(w, mask, static_cast<uint32_t>(i.immediate), i.option != 0);
}

void decode_copy(Decoder& d) {
  const bool through_l1 = d.take("ca");
  if (!through_l1) d.need("cg");
  if (!d.take("shared") && !d.take("shared::cta")) d.fail("{}: the destination must be .shared", d.opcode());
  d.need("global");
  while (take_cache_hint(d)) {
  }
  d.need_operands(3, 5);
  Instruction i;
  i.bytes = static_cast<uint8_t>(d.integer_operand(d.operand(2), 4, 16));
  if (i.bytes != 16 && (!through_l1 || (i.bytes != 4 && i.bytes != 8)))
    d.fail("{}: copies have 16 bytes, with .ca also 4 and 8", d.opcode());
  i.space = Space::kShared;
  d.address(d.operand(0), &i, 0);
  // `immediate` is the source's offset; the destination's offset is in a separate register, and the width of
  // its address in `vector`.
  const uint32_t offset[] = {d.constant(static_cast<uint64_t>(i.immediate), 4)};
  i.more = d.pool(offset);
  i.vector = i.address_bytes;
  i.space = Space::kGlobal;
  i.address_bytes = 8;
  d.address(d.operand(1), &i, 1);
  if (d.operand_count() > 3) {
    const Operand& last = d.operand(3);
    unsigned width = 0;
    if (d.operand_count() == 5) d.fail("{}: cache policies are not implemented", d.opcode());
    const bool number = last.kind == Operand::Kind::kInteger;
    if (!number && d.is_predicate(last)) {
      bool negated = false;
      i.r[3] = d.predicate_source(last, &negated);
      if (negated) d.fail("{}: the predicate cannot be negated", d.opcode());
    } else {
      i.r[2] = d.loose_source(last, Type::kU32, &width);
      if (width != 4) d.fail("{}: the size of the source has 32 bits", d.opcode());
    }
  }
  i.run = run_copy;
  d.emit(i);
}

void decode_cp(Decoder& d) {
  if (!d.take("async")) d.fail("{} is not implemented", d.opcode());
  if (d.next_modifier() == "bulk" || d.next_modifier() == "reduce")
    d.fail("{} is not implemented (TMA)", d.opcode());
  if (d.next_modifier() == "mbarrier") d.fail("{} is not implemented (mbarrier objects)", d.opcode());
  Instruction i;
  if (d.take("commit_group")) {
    d.need_operands(0);
    i.run = run_commit;
    d.emit(i);
  } else if (d.take("wait_group")) {
    d.need_operands(1);
    i.immediate = d.integer_operand(d.operand(0), 0, 1 << 20);
    i.run = run_wait;
    d.emit(i);
  } else if (d.take("wait_all")) {
    d.need_operands(0);
    i.option = 1;
    i.run = run_wait;
    d.emit(i);
  } else {
    decode_copy(d);
  }
}

constexpr Opcode kOpcodes[] = {{"cp", decode_cp}};

}  // namespace

std::span<const Opcode> async_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
