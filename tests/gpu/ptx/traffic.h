// Counts the data that kernels move, and the least that would carry the same bytes: whether lanes read
// neighbours, and whether they meet in a bank of shared memory.
//
// Global memory moves sectors of 32 bytes. A warp instruction moves those that its lanes touch, but a load none of the
// last kKept sectors that the same warp has loaded: the first-level cache has them, while stores pass through it. The
// least are the bytes that lanes touch, each counted once, in whole sectors. Shared memory has 32 banks of 4 bytes: lanes with accesses of
// up to 4 bytes pass together, those of 8 in halves of a warp, those of 16 (and rows of matrices) in quarters; a group
// takes as many passes as the bank with most different words has, and at least its bytes over 128.
// Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory" and "Shared Memory and Memory Banks".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "ptx/access.h"

namespace strata::gpu_tests {

// The last sectors that a warp has loaded, and their bytes that were used.
class RecentSectors {
 public:
  static constexpr size_t kKept = 128;
  // Uses bytes of a sector; returns whether it was there, and in `mask` leaves the bytes that were not used before.
  bool use(uint64_t sector, uint32_t& mask);

 private:
  struct Sector {
    uint64_t number = ~uint64_t{0};
    uint32_t used = 0;
  };
  std::array<Sector, kKept> sectors_;
  size_t next_ = 0;
};

// Of all launches of a kernel.
struct Traffic {
  const Kernel* kernel = nullptr;
  uint64_t launches = 0;
  uint64_t threads = 0;       // of a block, the most
  uint64_t shared_bytes = 0;  // of a block, the most
  uint64_t sectors = 0, least_sectors = 0;
  uint64_t passes = 0, least_passes = 0;
  // By instruction number: sectors and passes above its least.
  std::map<uint32_t, std::array<uint64_t, 2>> excess;
};
using TrafficByKernel = std::map<std::string, Traffic, std::less<>>;

// One line a kernel, with a header. The last column has the line of the source that moves most above its least.
std::string traffic_csv(const TrafficByKernel& kernels);

// The accesses of one warp instruction; counted when it ends, unless the launch counts nothing.
class AccessTally {
 public:
  // `bytes` of every lane.
  AccessTally(Warp& warp, const Instruction& i, unsigned bytes, Access kind)
      : to_(warp.block->launch->traffic), warp_(warp), instruction_(i), bytes_(bytes), kind_(kind) {}
  AccessTally(const AccessTally&) = delete;
  AccessTally& operator=(const AccessTally&) = delete;
  ~AccessTally() {
    if (to_ != nullptr) count();
  }
  // At most one place a lane of each space.
  void add(unsigned lane, const Place& place) {
    if (to_ == nullptr) return;
    if (place.region->space == Space::kShared) {
      shared_at_[lane] = place.offset;
      shared_lanes_ |= uint32_t{1} << lane;
    } else if (place.region->space == Space::kGlobal || place.region->space == Space::kConst) {
      global_at_[lane] = place.region->base + place.offset;
      global_lanes_ |= uint32_t{1} << lane;
    }
  }

 private:
  void count();

  Traffic* to_;
  Warp& warp_;
  const Instruction& instruction_;
  unsigned bytes_;
  Access kind_;
  uint32_t global_lanes_ = 0, shared_lanes_ = 0;
  std::array<uint64_t, kLanes> global_at_, shared_at_;
};

}  // namespace strata::gpu_tests
