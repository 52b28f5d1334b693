#include "ptx/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "ptx/block.h"

namespace strata::gpu_tests {

void run_grid(Launch& launch, Dice& dice) {
  const auto blocks = static_cast<uint32_t>(uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2]);
  std::vector<uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t at = blocks; at > 1; --at) std::swap(order[at - 1], order[dice.below(at)]);
  BlockRunner runner(launch, dice);
  for (const uint32_t block : order) runner.run(block);
  launch.counters->blocks += blocks;
  ++launch.counters->launches;
}

BlockRunner::BlockRunner(Launch& launch, Dice& dice) : launch_(launch), dice_(dice) {
  const Kernel& kernel = *launch.kernel;
  block_.launch = &launch;
  block_.threads = launch.block[0] * launch.block[1] * launch.block[2];
  const uint64_t shared = kernel.shared_bytes + (kernel.dynamic_shared ? launch.dynamic_shared : 0);
  block_.shared = Region("shared memory", Space::kShared, 0, shared);
  warps_.resize((block_.threads + kLanes - 1) / kLanes);
  block_.warps = &warps_;
  for (size_t n = 0; n < warps_.size(); ++n) {
    Warp& warp = warps_[n];
    warp.kernel = &kernel;
    warp.block = &block_;
    warp.index = static_cast<unsigned>(n);
    warp.register_file.resize(kernel.register_bytes + 64);
    warp.registers =
        warp.register_file.data() + (64 - reinterpret_cast<uintptr_t>(warp.register_file.data()) % 64);
    warp.local = Region("local memory", Space::kLocal, 0, kernel.local_bytes * kLanes);
  }
}

void BlockRunner::start(uint32_t number) {
  block_.number = number;
  block_.id[0] = number % launch_.grid[0];
  block_.id[1] = number / launch_.grid[0] % launch_.grid[1];
  block_.id[2] = number / launch_.grid[0] / launch_.grid[1];
  block_.barriers_done = 0;
  if (block_.shared.size > 0) {
    std::fill(block_.shared.data.begin(), block_.shared.data.end(), std::byte{0xcd});
    block_.shared.forget();
    block_.shared.shadow.clear();
  }
  barriers_ = {};
  live_threads_ = block_.threads;
  for (Warp& warp : warps_) start_warp(warp);
}

void BlockRunner::start_warp(Warp& warp) {
  warp.recent.reset();
  const Kernel& kernel = *launch_.kernel;
  const unsigned threads = std::min(kLanes, block_.threads - warp.index * kLanes);
  warp.live = threads == kLanes ? kAllLanes : (1u << threads) - 1;
  warp.carry = 0;
  std::fill(warp.register_file.begin(), warp.register_file.end(), std::byte{0xcd});
  std::copy(kernel.constants.begin(), kernel.constants.end(), warp.registers);
  for (const SpecialRegister& special : kernel.specials) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const uint64_t value = special_value(warp, special.name, lane);
      std::memcpy(warp.registers + special.reg + lane * special.bytes, &value, special.bytes);
    }
  }
  warp.clocks = {};
  warp.clocks[warp.index] = 1;
  warp.base = Actor{};
  warp.base.stamp.operation = launch_.operation & Stamp::kMaxOperation;
  warp.base.stamp.block = block_.number & (Stamp::kMaxBlocks - 1);
  warp.base.order = launch_.operations;
  if (kernel.local_bytes > 0) warp.local.forget();
  warp.paths.assign(1, Path{warp.live, 0});
  warp.joins.clear();
  warp.copies.clear();
  warp.copy_groups = {};
}

uint64_t BlockRunner::special_value(const Warp& warp, const std::string& name, unsigned lane) const {
  const unsigned thread = warp.thread(lane);
  const unsigned* size = launch_.block;
  const auto axis = [&] { return static_cast<size_t>(name.back() - 'x'); };
  if (name.starts_with("%tid")) {
    const unsigned id[3] = {thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]};
    return id[axis()];
  }
  if (name.starts_with("%ntid")) return size[axis()];
  if (name.starts_with("%ctaid")) return block_.id[axis()];
  if (name.starts_with("%nctaid")) return launch_.grid[axis()];
  if (name == "%laneid") return lane;
  if (name == "%warpid") return warp.index;
  if (name == "%nwarpid") return warps_.size();
  if (name == "%nsmid") return 1;
  if (name == "%gridid") return launch_.operation;
  if (name == "%lanemask_eq") return 1u << lane;
  if (name == "%lanemask_lt") return (1u << lane) - 1;
  if (name == "%lanemask_le") return (2u << lane) - 1;
  if (name == "%lanemask_gt") return ~((2u << lane) - 1) & kAllLanes;
  if (name == "%lanemask_ge") return ~((1u << lane) - 1) & kAllLanes;
  if (name == "%dynamic_smem_size") return launch_.dynamic_shared;
  if (name == "%total_smem_size" || name == "%aggr_smem_size")
    return launch_.kernel->shared_used + launch_.dynamic_shared;
  return 0;  // %smid
}

void BlockRunner::run(uint32_t number) {
  start(number);
  const auto count = static_cast<uint32_t>(warps_.size());
  for (;;) {
    // The first runnable warp, starting from a random one.
    const uint32_t first = count > 1 ? dice_.below(count) : 0;
    Warp* chosen = nullptr;
    for (uint32_t n = 0; n < count && chosen == nullptr; ++n) {
      Warp& warp = warps_[(first + n) % count];
      if (std::any_of(warp.paths.begin(), warp.paths.end(),
                      [](const Path& path) { return path.state == Path::State::kReady; })) {
        chosen = &warp;
      }
    }
    if (chosen == nullptr) break;
    slice(*chosen);
  }
  if (live_threads_ > 0) report_deadlock();
}

// Runs a random number of instructions of one path, so that warps interleave in many ways.
void BlockRunner::slice(Warp& warp) {
  uint32_t ready = 0;
  for (const Path& path : warp.paths) ready += path.state == Path::State::kReady ? 1 : 0;
  uint32_t which = ready > 1 ? dice_.below(ready) : 0;
  uint32_t at = 0;
  while (warp.paths[at].state != Path::State::kReady || which-- > 0) ++at;
  uint32_t budget = 64 + dice_.below(2048);
  const uint32_t begin = budget;
  run_path(warp, at, &budget);
  launch_.executed += begin - budget;
  launch_.counters->instructions += begin - budget;
  if (launch_.executed > launch_.instruction_limit) {
    const uint32_t pc = warp.paths.empty() ? 0 : warp.paths.front().pc;
    const unsigned lane =
        warp.paths.empty() ? 0 : static_cast<unsigned>(std::countr_zero(warp.paths.front().mask));
    warp.fail(Fault::kLimit, launch_.kernel->code[std::min<size_t>(pc, launch_.kernel->code.size() - 1)],
              lane, fmt::format("the launch ran more than {} instructions", launch_.instruction_limit));
  }
}

}  // namespace strata::gpu_tests
