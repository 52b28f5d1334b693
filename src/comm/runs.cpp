#include "comm/runs.h"

#include <algorithm>
#include <cstring>

namespace strata::comm {

Stream::Stream(const Runs& runs) {
  int64_t bytes = 0;
  for (Run run : runs) {
    if (run.total() == 0) continue;
    if (run.count > 1 && run.stride == run.bytes) run = {.offset = run.offset, .bytes = run.total()};
    bool joined = false;
    if (!runs_.empty() && run.count == 1) {
      Run& last = runs_.back();
      joined = last.count == 1 && last.offset + last.bytes == run.offset;
      if (joined) last.bytes += run.bytes;
    }
    if (!joined) {
      runs_.push_back(run);
      starts_.push_back(bytes);
    }
    bytes += run.total();
  }
}

Cursor Stream::at(int64_t position) const {
  Cursor cursor;
  cursor.stream_ = this;
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  if (after == starts_.begin()) return cursor;
  cursor.run_ = static_cast<size_t>(after - starts_.begin()) - 1;
  const Run& run = runs_[cursor.run_];
  const int64_t within = position - starts_[cursor.run_];
  cursor.repeat_ = within / run.bytes;
  cursor.enter();
  if (cursor.left_ > 0) {
    cursor.offset_ += within % run.bytes;
    cursor.left_ -= within % run.bytes;
  }
  return cursor;
}

bool Stream::contiguous(int64_t begin, int64_t end, int64_t* offset) const {
  const Cursor cursor = at(begin);
  *offset = cursor.offset();
  return cursor.left() >= end - begin;
}

void Cursor::enter() {
  offset_ = left_ = 0;
  while (run_ < stream_->runs_.size() && repeat_ >= stream_->runs_[run_].count) {
    ++run_;
    repeat_ = 0;
  }
  if (run_ == stream_->runs_.size()) return;
  const Run& run = stream_->runs_[run_];
  offset_ = run.offset + repeat_ * run.stride;
  left_ = run.bytes;
}

void Cursor::advance(int64_t bytes) {
  offset_ += bytes;
  left_ -= bytes;
  if (left_ > 0) return;
  ++repeat_;
  enter();
}

void copy_runs(std::byte* to_base, Cursor to, const std::byte* from_base, Cursor from, int64_t bytes) {
  while (bytes > 0) {
    const int64_t n = std::min({bytes, to.left(), from.left()});
    std::byte* target = to_base + to.offset();
    const std::byte* source = from_base + from.offset();
    if (target != source) std::memcpy(target, source, static_cast<size_t>(n));
    to.advance(n);
    from.advance(n);
    bytes -= n;
  }
}

Runs gaps_of(const std::vector<Stream>& streams, int64_t bytes) {
  int64_t covered = 0;
  for (const Stream& stream : streams) covered += stream.bytes();
  if (covered == bytes) return {};
  std::vector<std::pair<int64_t, int64_t>> covered_ranges;
  for (const Stream& stream : streams) {
    for (const Run& run : stream.runs()) {
      for (int64_t i = 0; i < run.count; ++i)
        covered_ranges.emplace_back(run.offset + i * run.stride, run.bytes);
    }
  }
  std::sort(covered_ranges.begin(), covered_ranges.end());
  covered_ranges.emplace_back(bytes, 0);
  Runs gaps;
  int64_t at = 0;
  for (const auto& [offset, length] : covered_ranges) {
    if (offset > at) gaps.push_back({.offset = at, .bytes = offset - at});
    at = std::max(at, offset + length);
  }
  return gaps;
}

}  // namespace strata::comm
