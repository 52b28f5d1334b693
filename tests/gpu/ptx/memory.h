// Device memory: allocations at addresses of their own, with the bytes that were written and a shadow.
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

// Generic addresses of the other spaces: an offset within the space plus its base.
inline constexpr uint64_t kSharedBase = 0x6000'0000'0000;
inline constexpr uint64_t kLocalBase = 0x6100'0000'0000;
inline constexpr uint64_t kParamBase = 0x6200'0000'0000;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 32;
inline constexpr uint64_t kGlobalBase = 0x7000'0000'0000;

// Consecutive bytes of one space. Offsets count from its base.
class Region {
 public:
  Region() = default;
  Region(std::string name, Space space, uint64_t base, uint64_t bytes);

  void reset(uint64_t bytes);
  // Each byte is unwritten again.
  void forget() { std::fill(written_.begin(), written_.end(), uint16_t{0}); }

  bool written(uint64_t offset, uint64_t bytes) const;
  void mark(uint64_t offset, uint64_t bytes, bool written);
  // The first byte that was never written, or `bytes` past the offset.
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
  std::vector<uint16_t> written_;  // one bit a byte
};

class Memory {
 public:
  // 256-byte aligned; a gap of at least 64 KiB follows, so that an overrun meets no other allocation.
  Region& allocate(uint64_t bytes, std::string name, Space space = Space::kGlobal);
  // Addresses are never used again: a later access is named as one to freed memory.
  void free(uint64_t address);
  // The allocation that an address belongs to, or the last one before it; null where there is none.
  Region* find(uint64_t address) const;
  void clear_shadows();
  uint64_t allocated() const { return allocated_; }
  const std::vector<std::unique_ptr<Region>>& regions() const { return regions_; }

 private:
  std::vector<std::unique_ptr<Region>> regions_;  // by address
  uint64_t next_ = kGlobalBase;
  uint64_t allocated_ = 0;
};

}  // namespace strata::gpu_tests
