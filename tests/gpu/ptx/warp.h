// A warp and its block during execution.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ptx/instruction.h"
#include "ptx/memory.h"
#include "ptx/order.h"
#include "ptx/violation.h"

namespace strata::gpu_tests {

inline constexpr unsigned kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffff'ffff;

struct Traffic;  // traffic.h
class RecentSectors;

struct Counters {
  uint64_t instructions = 0;  // warp instructions
  uint64_t global_bytes = 0;  // loaded and stored by lanes
  uint64_t shared_bytes = 0;
  uint64_t launches = 0;
  uint64_t blocks = 0;
};

struct Checks {
  bool races = true;
  bool unwritten = true;
};

// How mma adds: sequentially in order of k, rounded to nearest, or like sm_90 (accumulation.h).
enum class MmaSum { kEachProduct, kHopper };

// A running launch, shared by its blocks.
struct Launch {
  const Kernel* kernel = nullptr;
  const Memory* memory = nullptr;
  const OperationTable* operations = nullptr;
  unsigned operation = 0;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  uint64_t dynamic_shared = 0;
  Region params;
  Checks checks;
  MmaSum mma = MmaSum::kEachProduct;
  uint64_t instruction_limit = 0;
  uint64_t executed = 0;
  Counters* counters = nullptr;
  Traffic* traffic = nullptr;  // nullptr: off
};

class Warp;

struct Block {
  Launch* launch = nullptr;
  unsigned id[3] = {0, 0, 0};
  unsigned number = 0;  // in the grid
  unsigned threads = 0;
  Region shared;
  uint32_t barriers_done = 0;
  const std::vector<Warp>* warps = nullptr;
};

// Lanes that run together, from `pc` until they reach the join.
struct Path {
  enum class State : uint8_t { kReady, kBarrier, kWarpSync };
  uint32_t mask = 0;
  uint32_t pc = 0;
  uint32_t join = kNone;  // index in Warp::joins
  State state = State::kReady;
  uint8_t barrier = 0;   // the barrier it waits at, if kBarrier
  uint32_t waiting = 0;  // the lanes that execute the instruction it waits at
};

// Reconvergence point of paths.
struct Join {
  uint32_t pc = 0;
  uint32_t expected = 0;
  uint32_t arrived = 0;
  uint32_t parent = kNone;

  bool unused() const { return expected == 0; }
};

struct AsyncCopy {
  uint64_t from;
  uint32_t to;
  uint32_t group;  // of the lane
  uint32_t at;     // instruction
  uint8_t lane;
  uint8_t bytes;
  uint8_t from_bytes;
};

class Warp {
 public:
  template <typename T>
  T* reg(uint32_t offset) {
    return reinterpret_cast<T*>(registers + offset);
  }
  uint32_t& predicate(uint32_t offset) { return *reg<uint32_t>(offset); }
  const uint32_t* more(const Instruction& i) const { return kernel->operands.data() + i.more; }

  uint32_t at(const Instruction& i) const { return static_cast<uint32_t>(&i - kernel->code.data()); }
  unsigned thread(unsigned lane) const { return index * kLanes + lane; }

  // The lane as the actor of an access.
  Actor actor(unsigned lane, const Instruction& i) const {
    Actor one = base;
    one.stamp.thread = thread(lane) & 1023;
    one.stamp.clock = clocks[index] & Stamp::kMaxClock;
    one.stamp.strong = i.strong ? 1 : 0;
    one.clocks = clocks.data();
    one.barriers = block->barriers_done;
    one.at = at(i);
    return one;
  }

  [[noreturn]] void fail(Fault fault, const Instruction& i, unsigned lane, const std::string& what,
                         uint64_t address = 0, const std::string& allocation = "",
                         const std::string& other = "") const;

  const Kernel* kernel = nullptr;
  Block* block = nullptr;
  unsigned index = 0;
  uint32_t live = 0;
  uint32_t carry = 0;
  std::byte* registers = nullptr;  // 64-byte aligned, in `register_file`
  std::vector<std::byte> register_file;
  std::array<uint32_t, 32> clocks{};
  Actor base;
  Region* last_region = nullptr;
  Region local;  // lane by lane
  std::vector<Path> paths;
  std::vector<Join> joins;
  std::vector<AsyncCopy> copies;
  std::array<uint32_t, kLanes> copy_groups{};  // committed, per lane
  std::shared_ptr<RecentSectors> recent;       // nullptr: off
};

template <typename F>
inline void for_lanes(uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(std::countr_zero(mask)));
}

}  // namespace strata::gpu_tests
