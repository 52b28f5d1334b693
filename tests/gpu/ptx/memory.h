// Device memory: allocations at distinct addresses, with a record of written bytes and a shadow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptx/shadow.h"
#include "ptx/types.h"

namespace strata::gpu_tests {

// Base addresses of the other spaces: a generic address is the base plus the offset within the space.
inline constexpr uint64_t kSharedBase = 0x6000'0000'0000;
inline constexpr uint64_t kLocalBase = 0x6100'0000'0000;
inline constexpr uint64_t kParamBase = 0x6200'0000'0000;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 32;
inline constexpr uint64_t kGlobalBase = 0x7000'0000'0000;

// Consecutive bytes of one space. Offsets are relative to its base.
class Region {
 public:
  Region() = default;
  Region(std::string name, Space space, uint64_t base, uint64_t bytes);

  void reset(uint64_t bytes);
  // Marks all bytes as unwritten.
  void forget() { std::fill(written_.begin(), written_.end(), uint16_t{0}); }

  bool written(uint64_t offset, uint64_t bytes) const;
  void mark(uint64_t offset, uint64_t bytes, bool written);
  // The first unwritten byte, or `bytes` past the offset.
  uint64_t first_unwritten(uint64_t offset, uint64_t bytes) const;

  std::string name;
  Space space = Space::kGlobal;
  uint64_t base = 0;
  uint64_t size = 0;
  bool read_only = false;
  bool freed = false;
  std::vector<std::byte> data;
  Shadow shadow;

 private:
  std::vector<uint16_t> written_;  // one bit per byte
};

class Memory {
 public:
  explicit Memory(uint64_t base = kGlobalBase) : next_(base) {}
  // 256-byte aligned and followed by a gap of at least 64 KiB, so that an overrun does not reach another
  // allocation.
  Region& allocate(uint64_t bytes, std::string name, Space space = Space::kGlobal);
  // Addresses are not reused, so that a later access is reported as one to freed memory.
  void free(uint64_t address);
  // The allocation at an address, or the last one before it; null if there is none.
  Region* find(uint64_t address) const;
  void clear_shadows();
  uint64_t allocated() const { return allocated_; }
  const std::vector<std::unique_ptr<Region>>& regions() const { return regions_; }

 private:
  std::vector<std::unique_ptr<Region>> regions_;  // by address
  uint64_t next_;
  uint64_t allocated_ = 0;
};

}  // namespace strata::gpu_tests
