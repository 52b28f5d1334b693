// Pools: memory for values that one segment of a micro-batch leaves for another while other micro-batches run
// between them, and for messages between the ranks of a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/script.h"

namespace strata::program {

// Values that live from one action of a micro-batch to another. Those of one micro-batch (and of one chunk,
// if each has such values) share an entry.
struct Pool {
  std::string name = {};   // "F→B"
  int64_t offset = 0;      // of entry 0 in the arena
  int64_t slot_bytes = 0;  // entries are consecutive
  int32_t slots = 0;
  int32_t chunks = 1;
  std::vector<int32_t> slot_of = {};  // by micro-batch, then chunk

  int64_t bytes() const { return slots * slot_bytes; }
  size_t place(int64_t micro_batch, int64_t chunk) const {
    return static_cast<size_t>(micro_batch * int64_t{chunks} + chunk);
  }
  int32_t slot(const Action& action) const { return slot_of[place(action.micro_batch, action.chunk)]; }
  // In the arena, of the entry that an action uses.
  int64_t offset_for(const Action& action) const { return offset + slot(action) * slot_bytes; }
};

// Entries for intervals that may not share one while they overlap, both ends included: the fewest possible.
struct Slots {
  int32_t count = 0;
  std::vector<int32_t> of;  // by span
};
Slots color(const std::vector<Span>& spans);

// The pools of a program. Where micro-batches follow one another none are needed but those of messages.
class Pools {
 public:
  Pools() = default;
  // With the entries that the schedule needs; sizes are not known yet.
  Pools(const Script& script, int32_t micro_batches, int32_t chunks, Backward backward);

  // Whether values passed between segments need pools.
  bool overlap() const { return overlap_; }
  // The pool of values that these segments use, in the order in which a micro-batch passes them; of one chunk
  // the first and the last of them: chunks share it. Its index.
  size_t of(std::span<const SegmentAt> segments);
  size_t add(Pool pool);
  // Reserves space in the entries of a pool for a value made in `chunk`; returns its offset in an entry.
  int64_t add_value(size_t pool, int32_t chunk, int64_t bytes);

  bool empty() const { return pools_.empty(); }
  const std::vector<Pool>& all() const { return pools_; }
  int64_t bytes() const;
  // Pools are consecutive, from 0 on.
  void lay_out();

 private:
  Pool make(std::span<const SegmentAt> segments) const;

  Script script_;
  int32_t micro_batches_ = 1, chunks_ = 1;
  bool overlap_ = false;
  std::vector<Pool> pools_;
  std::vector<std::vector<int64_t>> filled_;  // by pool and chunk: bytes of an entry
};

}  // namespace strata::program
