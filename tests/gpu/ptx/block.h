// The warps of a block, their paths and barriers.
#pragma once

#include <array>
#include <vector>

#include "ptx/run.h"
#include "ptx/warp.h"

namespace strata::gpu_tests {

class BlockRunner {
 public:
  BlockRunner(Launch& launch, Dice& dice);
  void run(uint32_t number);

 private:
  struct Barrier {
    uint32_t expected = 0;  // threads; 0: all live ones
    bool counted = false;
    bool in_use = false;
    uint32_t arrived = 0;
    uint32_t votes = 0;
    bool all = true;
    bool any = false;
    std::array<uint32_t, 32> clocks{};
  };

  void start(uint32_t number);
  void start_warp(Warp& warp);
  uint64_t special_value(const Warp& warp, const std::string& name, unsigned lane) const;
  void slice(Warp& warp);

  // paths.cpp
  void run_path(Warp& warp, uint32_t index, uint32_t* budget);
  void split(Warp& warp, uint32_t index, const Instruction& i,
             const std::vector<std::pair<uint32_t, uint32_t>>& sides);
  void arrive_at_join(Warp& warp, uint32_t index);
  void leave(Warp& warp, uint32_t index, uint32_t lanes);
  void complete_join(Warp& warp, uint32_t join);
  uint32_t new_join(Warp& warp, const Join& join);
  bool warp_sync(Warp& warp, uint32_t index, const Instruction& i, uint32_t lanes);
  uint32_t group(Warp& warp, const Instruction& i, uint32_t set, unsigned lane, uint32_t* needed);
  bool run_groups(Warp& warp, const Instruction& i, uint32_t set);

  // block_barrier.cpp
  bool barrier(Warp& warp, uint32_t index, const Instruction& i, uint32_t lanes);
  void complete_barriers();
  void complete_barrier(uint32_t number);
  [[noreturn]] void report_deadlock();

  Launch& launch_;
  Dice& dice_;
  Block block_;
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_{};
  uint32_t live_threads_ = 0;
};

}  // namespace strata::gpu_tests
