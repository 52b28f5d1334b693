// Bytes of a buffer in the order of its runs, cut anywhere: what one member sends and another one receives
// may be cut into runs differently, and both are walked side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

class Cursor;

class Stream {
 public:
  Stream() = default;
  // Runs that follow one another without a gap become one.
  explicit Stream(const Runs& runs);
  int64_t bytes() const { return starts_.empty() ? 0 : starts_.back() + runs_.back().total(); }
  Cursor at(int64_t position) const;
  // Whether [begin, end) of it is contiguous in memory; `offset` is set to its start.
  bool contiguous(int64_t begin, int64_t end, int64_t* offset) const;
  const Runs& runs() const { return runs_; }

 private:
  friend class Cursor;
  Runs runs_;                    // none is empty
  std::vector<int64_t> starts_;  // start of each run, in bytes of the sequence
};

// A position in a stream.
class Cursor {
 public:
  int64_t offset() const { return offset_; }  // in the buffer
  int64_t left() const { return left_; }      // contiguous bytes from here; 0 at the end
  void advance(int64_t bytes);                // at most left()

 private:
  friend class Stream;
  void enter();  // enters chunk (run_, piece_)
  const Stream* stream_ = nullptr;
  size_t run_ = 0;
  int64_t piece_ = 0;
  int64_t offset_ = 0, left_ = 0;
};

// Copies `bytes` between positions of two buffers.
void copy_runs(std::byte* to_base, Cursor to, const std::byte* from_base, Cursor from, int64_t bytes);

// What no stream covers of a buffer of `bytes` bytes, ascending. Streams do not overlap.
Runs gaps_of(const std::vector<Stream>& streams, int64_t bytes);

}  // namespace strata::comm
