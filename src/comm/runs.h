// The bytes of a buffer in the order of its runs. Sender and receiver may split the same data into runs
// differently; copies walk both in parallel.
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
  // Merges adjacent runs.
  explicit Stream(const Runs& runs);
  int64_t bytes() const { return starts_.empty() ? 0 : starts_.back() + runs_.back().total(); }
  Cursor at(int64_t position) const;
  // Whether [begin, end) is contiguous in memory; sets `offset` to its start in the buffer.
  bool contiguous(int64_t begin, int64_t end, int64_t* offset) const;
  const Runs& runs() const { return runs_; }

 private:
  friend class Cursor;
  Runs runs_;                    // none is empty
  std::vector<int64_t> starts_;  // stream position of each run, in bytes
};

// A position in a stream.
class Cursor {
 public:
  int64_t offset() const { return offset_; }  // in the buffer
  int64_t left() const { return left_; }      // contiguous bytes from here; 0 at the end
  void advance(int64_t bytes);                // at most left()

 private:
  friend class Stream;
  void enter();  // moves to the start of repetition repeat_ of run_
  const Stream* stream_ = nullptr;
  size_t run_ = 0;
  int64_t repeat_ = 0;
  int64_t offset_ = 0, left_ = 0;
};

// Copies `bytes` between positions of two buffers.
void copy_runs(std::byte* to_base, Cursor to, const std::byte* from_base, Cursor from, int64_t bytes);

// The ranges of a buffer of `bytes` bytes that no stream covers, ascending. Streams must not overlap.
Runs gaps_of(const std::vector<Stream>& streams, int64_t bytes);

}  // namespace strata::comm
