// The last collectives of a rank and its current activity, for the reports of the watchdog.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace strata::comm {

class FlightRecorder {
 public:
  static constexpr size_t kEntries = 64;

  void doing(std::string_view what);
  // Records the start of a collective; pass the result to done().
  uint64_t started(std::string_view group, uint64_t number, std::string_view label, int64_t bytes);
  void done(uint64_t entry);

  // "doing forward of micro-batch 3, step 17; last collective: gather of layer 2 (16.8 MB, number 51 of group
  // 'shard'), started 3.2 s ago".
  std::string summary() const;
  // One line for each of the last collectives, oldest first.
  std::string text() const;

 private:
  // Text of limited length, so that recording does not allocate.
  template <size_t N>
  struct Text {
    std::array<char, N> bytes;
    size_t length = 0;
    void set(std::string_view text);
    std::string_view view() const { return {bytes.data(), length}; }
  };
  struct Entry {
    uint64_t number = 0;
    Text<24> group;
    Text<72> label;
    int64_t bytes = 0;
    double begun = 0, ended = 0;  // monotonic seconds; ended 0: not yet
  };
  std::string describe(const Entry& entry) const;

  mutable std::mutex mutex_;
  Text<128> doing_;
  std::array<Entry, kEntries> entries_;
  uint64_t next_ = 0;
};

// "all-reduce of …, number 17 of group 'shard': ranks 0 and 2 have waited 1800 s for rank 1. Rank 1: doing
// …". `report` returns a rank's summary; at most eight are included, the missing ranks' first.
std::string describe_hang(std::string_view what, double seconds, std::span<const int> waiting,
                          std::span<const int> missing, const std::function<std::string(int)>& report);

}  // namespace strata::comm
