// Barriers of a block, and the report of a deadlock.
#include <fmt/core.h>

#include <algorithm>

#include "ptx/block.h"

namespace strata::gpu_tests {

// Returns true if the path continues without waiting.
bool BlockRunner::barrier(Warp& warp, uint32_t index, const Instruction& i, uint32_t lanes) {
  Path& path = warp.paths[index];
  uint32_t arriving = lanes;
  if (i.aligned && lanes != warp.live) {
    // The other lanes may exit or arrive on another path; if they do neither, report_deadlock names the
    // barrier.
    path.state = Path::State::kWarpSync;
    path.waiting = lanes;
    arriving = 0;
    for (const Path& other : warp.paths) {
      if (other.state == Path::State::kWarpSync && other.pc == path.pc) arriving |= other.waiting;
    }
    if (arriving != warp.live) return false;
  } else if (lanes != path.mask) {
    // Lanes whose guard is false continue.
    const Path rest{path.mask & ~lanes, path.pc + 1, path.join};
    path.mask = lanes;
    warp.paths.push_back(rest);
  }
  const uint32_t pc = warp.paths[index].pc;
  const auto first = static_cast<unsigned>(std::countr_zero(arriving));
  const uint32_t number = warp.reg<uint32_t>(i.r[1])[first];
  const uint32_t count = i.r[2] == kNone ? 0 : warp.reg<uint32_t>(i.r[2])[first];
  for_lanes(arriving, [&](unsigned lane) {
    if (warp.reg<uint32_t>(i.r[1])[lane] != number)
      warp.fail(Fault::kBarrier, i, lane, "lanes of a warp name different barriers");
  });
  if (number >= barriers_.size())
    warp.fail(Fault::kBarrier, i, first, fmt::format("barrier {} does not exist", number));
  if (i.r[2] != kNone && (count == 0 || count % kLanes != 0 || count > block_.threads)) {
    warp.fail(Fault::kBarrier, i, first,
              fmt::format("barrier {} of {} threads: expected a multiple of 32 up to {}", number, count,
                          block_.threads));
  }
  Barrier& one = barriers_[number];
  if (!one.in_use) {
    one = Barrier{};
    one.in_use = true;
    one.expected = count;
    one.counted = i.r[2] != kNone;
  } else if (one.expected != count) {
    warp.fail(
        Fault::kBarrier, i, first,
        fmt::format("barrier {} expects {} threads here and {} elsewhere", number, count, one.expected));
  }
  one.arrived += static_cast<uint32_t>(std::popcount(arriving));
  if (i.r[3] != kNone) {
    const uint32_t votes = (i.option != 0 ? ~warp.predicate(i.r[3]) : warp.predicate(i.r[3])) & arriving;
    one.votes += static_cast<uint32_t>(std::popcount(votes));
    one.all = one.all && votes == arriving;
    one.any = one.any || votes != 0;
  }
  for (size_t n = 0; n < one.clocks.size(); ++n) one.clocks[n] = std::max(one.clocks[n], warp.clocks[n]);
  if (++warp.clocks[warp.index] >= Stamp::kMaxClock) {
    warp.fail(Fault::kLimit, i, first, fmt::format("more than {} barriers in a block", Stamp::kMaxClock));
  }
  const bool waits = i.barrier != Instruction::BarrierKind::kArrive;
  for (Path& other : warp.paths) {
    const bool together = &other == &warp.paths[index] ||
                          (i.aligned && other.state == Path::State::kWarpSync && other.pc == pc);
    if (!together) continue;
    other.state = waits ? Path::State::kBarrier : Path::State::kReady;
    other.barrier = static_cast<uint8_t>(number);
    if (!waits) ++other.pc;
  }
  complete_barriers();
  return false;
}

void BlockRunner::complete_barriers() {
  for (uint32_t number = 0; number < barriers_.size(); ++number) {
    const Barrier& one = barriers_[number];
    if (!one.in_use) continue;
    const uint32_t expected = one.counted ? one.expected : live_threads_;
    if (one.arrived >= expected && one.arrived > 0) complete_barrier(number);
  }
}

void BlockRunner::complete_barrier(uint32_t number) {
  const Barrier one = barriers_[number];
  barriers_[number] = Barrier{};
  ++block_.barriers_done;
  for (Warp& warp : warps_) {
    bool took_part = false;
    for (Path& path : warp.paths) {
      if (path.state != Path::State::kBarrier || path.barrier != number) continue;
      took_part = true;
      const Instruction& i = launch_.kernel->code[path.pc];
      if (i.barrier == Instruction::BarrierKind::kPopc) {
        for_lanes(path.mask, [&](unsigned lane) { warp.reg<uint32_t>(i.r[0])[lane] = one.votes; });
      } else if (i.barrier == Instruction::BarrierKind::kAnd || i.barrier == Instruction::BarrierKind::kOr) {
        const bool holds = i.barrier == Instruction::BarrierKind::kAnd ? one.all : one.any;
        uint32_t& out = warp.predicate(i.r[0]);
        out = (out & ~path.mask) | (holds ? path.mask : 0);
      }
      path.state = Path::State::kReady;
      ++path.pc;
    }
    if (!took_part) continue;
    for (size_t n = 0; n < one.clocks.size(); ++n) {
      if (n != warp.index) warp.clocks[n] = std::max(warp.clocks[n], one.clocks[n]);
    }
  }
}

void BlockRunner::report_deadlock() {
  // Reports waits within a warp first: they are the cause if there are both.
  for (const Warp& warp : warps_) {
    for (const Path& path : warp.paths) {
      if (path.state != Path::State::kWarpSync) continue;
      const Instruction& i = launch_.kernel->code[path.pc];
      const auto lane = static_cast<unsigned>(std::countr_zero(path.mask));
      const bool is_barrier = i.kind == Instruction::Kind::kBarrier;
      std::string elsewhere;
      for (const Path& other : warp.paths) {
        if (other.pc != path.pc) {
          elsewhere +=
              fmt::format("; lanes {:#010x} wait at {}: {}", other.mask, launch_.kernel->place_text(other.pc),
                          launch_.kernel->statement_text(other.pc));
        }
      }
      warp.fail(is_barrier ? Fault::kBarrier : Fault::kMask, i, lane,
                fmt::format("only lanes {:#010x} of {:#010x} are here, and the others never arrive{}",
                            path.waiting, warp.live, elsewhere));
    }
  }
  for (const Warp& warp : warps_) {
    for (const Path& path : warp.paths) {
      const Instruction& i = launch_.kernel->code[path.pc];
      const Barrier& one = barriers_[path.barrier];
      warp.fail(
          Fault::kDeadlock, i, static_cast<unsigned>(std::countr_zero(path.mask)),
          fmt::format("waits at barrier {}, where {} of {} threads have arrived, and nothing else can run",
                      path.barrier, one.arrived, one.counted ? one.expected : live_threads_));
    }
  }
  throw Violation("no thread can run", {});
}

}  // namespace strata::gpu_tests
