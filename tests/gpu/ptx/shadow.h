// Records the last writers and readers of each part of an allocation. Finds races by happens-before.
//
// Memory is divided into granules of 1 to 16 bytes. A page of 1 KiB starts with granules of 16 bytes and is
// split when a smaller access occurs, so that results are exact: accesses are aligned, so none covers a part
// of a granule.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace strata::gpu_tests {

// Identifies an access. All bits zero: no access.
struct Stamp {
  static constexpr unsigned kMaxOperation = (1u << 15) - 1;
  static constexpr unsigned kMaxBlocks = 1u << 20;
  static constexpr unsigned kMaxClock = (1u << 15) - 1;

  uint64_t clock : 15;         // of the warp; of the block's barriers when several_warps
  uint64_t several_lanes : 1;  // of the thread's warp
  uint64_t several_warps : 1;
  uint64_t thread : 10;
  uint64_t block : 20;
  uint64_t several_blocks : 1;
  uint64_t strong : 1;  // atomic, volatile or relaxed: no race with another such access
  uint64_t operation : 15;

  bool none() const { return operation == 0; }
  unsigned warp() const { return static_cast<unsigned>(thread) / 32; }
  bool operator==(const Stamp&) const = default;
};
static_assert(sizeof(Stamp) == 8);

// Whether an operation happens before the current one.
class OperationOrder {
 public:
  virtual bool before_current(unsigned operation) const = 0;

 protected:
  ~OperationOrder() = default;
};

// The accessing thread. `clocks` has, for each warp of its block, the latest clock known to be in the past.
struct Actor {
  Stamp stamp{};
  const uint32_t* clocks = nullptr;
  uint32_t barriers = 0;  // completed in the block
  uint32_t at = 0;        // instruction
  const OperationOrder* order = nullptr;

  bool after(Stamp other) const;
};

struct Conflict {
  Stamp other{};
  uint32_t at = 0;
  bool other_wrote = false;
};

class Shadow {
 public:
  static constexpr unsigned kPageBytes = 1024;

  explicit Shadow(uint64_t bytes = 0) { reset(bytes); }
  void reset(uint64_t bytes);
  void clear();

  // Any range. On a race, return false and fill `conflict`.
  bool read(uint64_t offset, uint64_t bytes, const Actor& actor, Conflict* conflict);
  bool write(uint64_t offset, uint64_t bytes, const Actor& actor, Conflict* conflict);

 private:
  struct Cell {
    Stamp write{};
    Stamp read{};
    uint32_t write_at = 0;
    uint32_t read_at = 0;
  };
  struct OtherRead {
    uint32_t byte;
    uint32_t bytes;
    Stamp stamp;
    uint32_t at;
  };
  struct Page {
    unsigned shift = 4;
    std::vector<Cell> cells;
    // Readers in other operations, unordered with the one in the cell.
    std::vector<OtherRead> others;
  };

  Page& page_for(uint64_t offset, uint64_t bytes);
  template <typename F>
  bool each_cell(uint64_t offset, uint64_t bytes, F f);
  bool read_cell(Page& page, uint32_t index, const Actor& actor, Conflict* conflict);
  bool write_cell(Page& page, uint32_t index, const Actor& actor, Conflict* conflict);

  std::vector<Page> pages_;
};

}  // namespace strata::gpu_tests
