// Pools of slots: memory of what one segment of a micro-batch leaves for another while other micro-batches
// run between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/script.h"

namespace strata::program {

// Values made in `from` and read last in `to`. Those of one micro-batch lie together in a slot, from the
// start of the one action to the end of the other.
struct Pool {
  Segment from = Segment::kForward, to = Segment::kBackward;
  int64_t offset = 0;      // of slot 0 in the arena
  int64_t slot_bytes = 0;  // one slot lies behind the other
  int32_t slots = 0;
  std::vector<int32_t> slot_of = {};  // by micro-batch

  int64_t bytes() const { return slots * slot_bytes; }
};

// "F→B".
std::string name_of(const Pool& pool);

// Slots for spans that may not share one while they overlap, both ends included: as few as ever overlap.
struct Slots {
  int32_t count = 0;
  std::vector<int32_t> of;  // by span
};
Slots color(const std::vector<Span>& spans);

// The pools that programs with this backward may need, with the slots that the script asks for; their sizes
// are not known yet. Empty where micro-batches follow one another.
std::vector<Pool> make_pools(const Script& script, int32_t micro_batches, Backward backward);

}  // namespace strata::program
