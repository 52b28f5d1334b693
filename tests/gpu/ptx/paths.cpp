// Execution of a warp's paths: divergence, joins and instructions that wait for lanes.
#include <fmt/core.h>

#include <algorithm>

#include "ptx/block.h"

namespace strata::gpu_tests {

void BlockRunner::run_path(Warp& warp, uint32_t index, uint32_t* budget) {
  const Instruction* code = launch_.kernel->code.data();
  Path& path = warp.paths[index];
  const uint32_t join_pc = path.join == kNone ? kNone : warp.joins[path.join].pc;
  uint32_t pc = path.pc;
  const uint32_t mask = path.mask;
  for (;;) {
    if (pc == join_pc) [[unlikely]] {
      arrive_at_join(warp, index);
      return;
    }
    if (*budget == 0) {
      path.pc = pc;
      return;
    }
    --*budget;
    const Instruction& i = code[pc];
    uint32_t lanes = mask;
    if (i.guard != kNone) lanes &= i.guard_negated ? ~warp.predicate(i.guard) : warp.predicate(i.guard);
    switch (i.kind) {
      case Instruction::Kind::kPlain:
        if (lanes != 0) i.run(warp, i, lanes);
        ++pc;
        break;
      case Instruction::Kind::kBranch:
        if (lanes == mask) {
          pc = i.target;
        } else if (lanes == 0) {
          ++pc;
        } else {
          split(warp, index, i, {{lanes, i.target}, {mask & ~lanes, pc + 1}});
          return;
        }
        break;
      case Instruction::Kind::kIndexedBranch: {
        std::vector<std::pair<uint32_t, uint32_t>> sides;
        if (lanes != mask) sides.emplace_back(mask & ~lanes, pc + 1);
        for_lanes(lanes, [&](unsigned lane) {
          const uint32_t choice = warp.reg<uint32_t>(i.r[0])[lane];
          if (choice >= i.target)
            warp.fail(Fault::kOutOfBounds, i, lane, fmt::format("target {} of {}", choice, i.target));
          const uint32_t target = launch_.kernel->targets[i.more + choice];
          const auto same = std::find_if(sides.begin(), sides.end(),
                                         [&](const auto& side) { return side.second == target; });
          if (same == sides.end())
            sides.emplace_back(1u << lane, target);
          else
            same->first |= 1u << lane;
        });
        if (sides.size() > 1) {
          split(warp, index, i, sides);
          return;
        }
        pc = sides.front().second;
        break;
      }
      case Instruction::Kind::kExit:
        if (lanes == 0) {
          ++pc;
          break;
        }
        path.pc = pc + 1;
        leave(warp, index, lanes);
        return;
      case Instruction::Kind::kBarrier:
        path.pc = pc;
        if (lanes == 0) {
          ++pc;
          break;
        }
        if (!barrier(warp, index, i, lanes)) return;
        ++pc;
        break;
      case Instruction::Kind::kWarpSync:
      case Instruction::Kind::kAligned:
        path.pc = pc;
        if (lanes != 0 && !warp_sync(warp, index, i, lanes)) return;
        ++pc;
        break;
    }
  }
}

uint32_t BlockRunner::new_join(Warp& warp, const Join& join) {
  for (uint32_t n = 0; n < warp.joins.size(); ++n) {
    if (!warp.joins[n].unused()) continue;
    warp.joins[n] = join;
    return n;
  }
  warp.joins.push_back(join);
  return static_cast<uint32_t>(warp.joins.size() - 1);
}

void BlockRunner::split(Warp& warp, uint32_t index, const Instruction& i,
                        const std::vector<std::pair<uint32_t, uint32_t>>& sides) {
  const Path before = warp.paths[index];
  uint32_t join = before.join;
  // A branch to the same target shares the join, so that loops do not nest.
  if (i.join != kNone && (join == kNone || warp.joins[join].pc != i.join)) {
    join = new_join(warp, Join{i.join, before.mask, 0, before.join});
  }
  bool first = true;
  for (const auto& [mask, pc] : sides) {
    const Path path{mask, pc, join};
    if (first)
      warp.paths[index] = path;
    else
      warp.paths.push_back(path);
    first = false;
  }
}

void BlockRunner::arrive_at_join(Warp& warp, uint32_t index) {
  const Path path = warp.paths[index];
  warp.joins[path.join].arrived |= path.mask;
  warp.paths[index] = warp.paths.back();
  warp.paths.pop_back();
  complete_join(warp, path.join);
}

void BlockRunner::complete_join(Warp& warp, uint32_t index) {
  Join& join = warp.joins[index];
  if (join.unused() || join.arrived != join.expected) return;
  warp.paths.push_back(Path{join.arrived, join.pc, join.parent});
  join = Join{};
}

// The lanes exit. Joins no longer wait for them.
void BlockRunner::leave(Warp& warp, uint32_t index, uint32_t lanes) {
  const uint32_t first_join = warp.paths[index].join;
  warp.live &= ~lanes;
  live_threads_ -= static_cast<uint32_t>(std::popcount(lanes));
  warp.paths[index].mask &= ~lanes;
  if (warp.paths[index].mask == 0) {
    warp.paths[index] = warp.paths.back();
    warp.paths.pop_back();
  }
  for (uint32_t join = first_join; join != kNone;) {
    const uint32_t parent = warp.joins[join].parent;
    warp.joins[join].expected &= ~lanes;
    complete_join(warp, join);
    join = parent;
  }
  // Paths that waited for these lanes check again.
  for (Path& path : warp.paths) {
    if (path.state == Path::State::kWarpSync) path.state = Path::State::kReady;
  }
  complete_barriers();
}

// The lanes of `set` that execute the instruction together with this lane: those with the same mask, or the
// whole warp.
uint32_t BlockRunner::group(Warp& warp, const Instruction& i, uint32_t set, unsigned lane, uint32_t* needed) {
  if (i.kind != Instruction::Kind::kWarpSync) {
    *needed = warp.live;
    return set;
  }
  const uint32_t* masks = warp.reg<uint32_t>(i.r[3]);
  const uint32_t mask = masks[lane];
  *needed = mask & warp.live;
  uint32_t together = 0;
  for_lanes(set, [&](unsigned other) { together |= static_cast<uint32_t>(masks[other] == mask) << other; });
  if ((together & ~mask) != 0) {
    warp.fail(Fault::kMask, i, static_cast<unsigned>(std::countr_zero(together & ~mask)),
              fmt::format("the mask {:#010x} leaves out this lane", mask));
  }
  return together;
}

// Runs the instruction for each group of the lanes if all groups are complete.
bool BlockRunner::run_groups(Warp& warp, const Instruction& i, uint32_t set) {
  uint32_t needed = 0;
  for (uint32_t rest = set; rest != 0;) {
    const uint32_t together = group(warp, i, set, static_cast<unsigned>(std::countr_zero(rest)), &needed);
    if ((needed & ~together) != 0) return false;
    rest &= ~together;
  }
  if (i.kind == Instruction::Kind::kAligned && set != kAllLanes) {
    // On hardware the behavior with missing lanes is undefined.
    warp.fail(Fault::kMask, i, static_cast<unsigned>(std::countr_zero(set)),
              fmt::format("needs all 32 lanes, only {:#010x} are here", set));
  }
  for (uint32_t rest = set; rest != 0;) {
    const uint32_t together = group(warp, i, set, static_cast<unsigned>(std::countr_zero(rest)), &needed);
    i.run(warp, i, together);
    rest &= ~together;
  }
  return true;
}

// Runs the instruction if all of its lanes have arrived, on this path or waiting on others. Returns false if
// the path now waits or has waited.
bool BlockRunner::warp_sync(Warp& warp, uint32_t index, const Instruction& i, uint32_t lanes) {
  if (run_groups(warp, i, lanes)) [[likely]]
    return true;
  Path& path = warp.paths[index];
  path.state = Path::State::kWarpSync;
  path.waiting = lanes;
  const uint32_t pc = path.pc;
  uint32_t here = 0;
  for (const Path& other : warp.paths) {
    if (other.state == Path::State::kWarpSync && other.pc == pc) here |= other.waiting;
  }
  if (!run_groups(warp, i, here)) return false;
  for (Path& other : warp.paths) {
    if (other.state != Path::State::kWarpSync || other.pc != pc) continue;
    other.state = Path::State::kReady;
    ++other.pc;
  }
  return false;
}

}  // namespace strata::gpu_tests
