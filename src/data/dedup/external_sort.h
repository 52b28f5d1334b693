// Sorts plain records that need not fit in memory. Records are added, sorted in memory while they fit,
// written run by run to a scratch file, and merged. The result depends only on the records.
//
// T is trivially copyable with operator<, a total order, and may have leading(): a uint64_t that rises with
// the order and is spread evenly (a hash), which makes the sort in memory faster and parallel.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/parallel.h"
#include "data/dedup/scratch_array.h"

namespace strata::data::dedup {

template <typename T>
void sort_in_memory(std::vector<T>& records, std::vector<T>& other) {
  if constexpr (requires(const T& t) { t.leading(); }) {
    constexpr int kShift = 64 - 10;
    constexpr size_t kBuckets = size_t{1} << 10;
    if (records.size() < 16 * kBuckets) return std::sort(records.begin(), records.end());
    std::vector<size_t> begin(kBuckets + 1);
    for (const T& record : records) ++begin[(record.leading() >> kShift) + 1];
    for (size_t i = 0; i < kBuckets; ++i) begin[i + 1] += begin[i];
    std::vector<size_t> at(begin.begin(), begin.end() - 1);
    other.resize(records.size());
    for (const T& record : records) other[at[record.leading() >> kShift]++] = record;
    records.swap(other);
    parallel_for(static_cast<int64_t>(kBuckets), [&](int64_t i) {
      T* data = records.data();
      std::sort(data + begin[static_cast<size_t>(i)], data + begin[static_cast<size_t>(i) + 1]);
    });
  } else {
    std::sort(records.begin(), records.end());
  }
}

template <typename T>
class ExternalSorter {
 public:
  ExternalSorter(const Scratch& scratch, std::string name)
      : scratch_(scratch),
        name_(std::move(name)),
        capacity_(std::max<size_t>(
            kFewest, static_cast<size_t>(std::max<int64_t>(scratch.memory, 0)) / (2 * sizeof(T)))) {}
  ~ExternalSorter() {
    try {
      if (file_) scratch_.files->remove(path(generation_));
    } catch (const Error&) {
      // The scratch folder is removed as a whole.
    }
  }
  ExternalSorter(const ExternalSorter&) = delete;
  ExternalSorter& operator=(const ExternalSorter&) = delete;

  void add(const T& record) {
    if (records_.size() == capacity_) flush();
    records_.push_back(record);
  }

  // Hands over every record in order; the sorter is empty afterwards.
  void drain(FunctionRef<void(const T&)> use) {
    if (!file_) {
      sort_in_memory(records_, other_);
      for (const T& record : records_) use(record);
    } else {
      if (!records_.empty()) flush();
      release(records_);
      release(other_);
      file_->close();
      while (runs_.size() > kFanIn) merge_some();
      merge(0, runs_.size(), use);
      scratch_.files->remove(path(generation_));
      file_.reset();
      runs_.clear();
    }
    records_.clear();
  }

 private:
  static constexpr size_t kFewest = 256;  // records in memory at least
  static constexpr size_t kFanIn = 64;

  struct Run {
    uint64_t begin, end;  // records of the file
  };
  // The part of a run that is in memory.
  struct Window {
    std::vector<T> records;
    size_t at = 0;
    uint64_t next, end;

    bool fill(const ReadableFile& file, size_t capacity) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(capacity, end - next));
      records.resize(n);
      at = 0;
      if (n > 0) file.read_at(next * sizeof(T), records.data(), n * sizeof(T));
      next += n;
      return n > 0;
    }
  };

  static void release(std::vector<T>& records) { std::vector<T>().swap(records); }
  Path path(int generation) const {
    return scratch_.folder / (name_ + "." + std::to_string(generation) + ".runs");
  }

  void flush() {
    sort_in_memory(records_, other_);
    if (!file_) file_ = scratch_.files->open_for_writing(path(generation_));
    const uint64_t begin = runs_.empty() ? 0 : runs_.back().end;
    file_->append(records_.data(), records_.size() * sizeof(T));
    runs_.push_back({begin, begin + records_.size()});
    records_.clear();
  }

  void merge(size_t first, size_t last, FunctionRef<void(const T&)> use) const {
    const ReadableFile file(path(generation_));
    const size_t window = std::max<size_t>(16, capacity_ / (last - first));
    std::vector<Window> windows;
    std::vector<size_t> heap;
    for (size_t run = first; run < last; ++run) {
      windows.push_back({{}, 0, runs_[run].begin, runs_[run].end});
      if (windows.back().fill(file, window)) heap.push_back(windows.size() - 1);
    }
    const auto later = [&](size_t a, size_t b) {
      return windows[b].records[windows[b].at] < windows[a].records[windows[a].at];
    };
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      Window& least = windows[heap.back()];
      use(least.records[least.at++]);
      if (least.at == least.records.size() && !least.fill(file, window)) {
        heap.pop_back();
      } else {
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
  }

  // Every kFanIn runs become one, in a new file.
  void merge_some() {
    auto next = scratch_.files->open_for_writing(path(generation_ + 1));
    std::vector<Run> merged;
    std::vector<T> buffer;
    const auto write = [&] {
      next->append(buffer.data(), buffer.size() * sizeof(T));
      buffer.clear();
    };
    for (size_t first = 0; first < runs_.size(); first += kFanIn) {
      const size_t last = std::min(runs_.size(), first + kFanIn);
      merge(first, last, [&](const T& record) {
        buffer.push_back(record);
        if (buffer.size() == kFewest) write();
      });
      merged.push_back({runs_[first].begin, runs_[last - 1].end});
    }
    write();
    next->close();
    scratch_.files->remove(path(generation_++));
    runs_ = std::move(merged);
    file_ = std::move(next);
  }

  Scratch scratch_;
  std::string name_;
  size_t capacity_;
  std::vector<T> records_, other_;
  std::unique_ptr<WritableFile> file_;
  int generation_ = 0;
  std::vector<Run> runs_;
};

}  // namespace strata::data::dedup
