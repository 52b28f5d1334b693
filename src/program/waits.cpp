#include "program/waits.h"

#include <algorithm>
#include <functional>
#include <map>

namespace strata::program {
namespace {

constexpr int32_t kNobody = -1;
using Newest = std::array<int32_t, graph::kQueues>;  // by queue: an instruction
constexpr Newest kNone = {kNobody, kNobody};
static_assert(graph::kQueues == 2);

// The bytes so far touched, cut into ranges of one history each. Who touched a range before it was last
// written is forgotten: the writer has waited for them.
class History {
 public:
  // Adds to `needed` whom an instruction that touches the range must come behind, and notes it.
  void touch(const ByteRange& range, size_t queue, int32_t instruction, bool writes, Newest& needed) {
    if (range.begin >= range.end) return;
    cut(range.begin);
    cut(range.end);
    auto cell = cells_.lower_bound(range.begin);
    for (int64_t at = range.begin; at < range.end;) {
      if (cell == cells_.end() || cell->first > at) {
        // Nobody touched the bytes up to the next cell.
        const int64_t end = cell == cells_.end() ? range.end : std::min(range.end, cell->first);
        cell = cells_.emplace_hint(cell, at, Cell{end, kNobody, 0, kNone});
      }
      Cell& one = cell->second;
      if (one.writer != kNobody) needed[one.writer_queue] = std::max(needed[one.writer_queue], one.writer);
      if (writes) {
        for (size_t q = 0; q < needed.size(); ++q) needed[q] = std::max(needed[q], one.readers[q]);
      }
      one.readers[queue] = instruction;
      at = one.end;
      ++cell;
    }
    if (!writes) return;
    cells_.erase(cells_.lower_bound(range.begin), cell);
    cells_.emplace(range.begin, Cell{range.end, instruction, queue, kNone});
  }

 private:
  struct Cell {
    int64_t end;
    int32_t writer;
    size_t writer_queue;
    Newest readers;  // since it was written
  };

  // Makes `at` the edge of a cell where it lies within one.
  void cut(int64_t at) {
    auto behind = cells_.upper_bound(at);
    if (behind == cells_.begin()) return;
    auto& [begin, cell] = *std::prev(behind);
    if (begin == at || cell.end <= at) return;
    Cell rest = cell;
    cell.end = at;
    cells_.emplace_hint(behind, at, rest);
  }

  std::map<int64_t, Cell> cells_;  // by their first byte
};

// The waits of some instructions of a list, in order, among each other.
void find_waits_of(std::span<const Access> list, std::span<const size_t> some,
                   std::vector<std::vector<int32_t>>& on, std::vector<Newest>& done_of) {
  History history;
  Newest last_of = kNone;  // instruction of each queue
  for (const size_t i : some) {
    const auto queue = static_cast<size_t>(list[i].queue);
    const auto instruction = static_cast<int32_t>(i);
    Newest needed = kNone;
    for (const ByteRange& range : list[i].reads) history.touch(range, queue, instruction, false, needed);
    for (const ByteRange& range : list[i].writes) history.touch(range, queue, instruction, true, needed);
    // Itself, where it reads what it writes.
    needed[queue] = kNobody;
    Newest& done = done_of[i];
    if (last_of[queue] != kNobody) {
      done = done_of[static_cast<size_t>(last_of[queue])];
      done[queue] = last_of[queue];
    }
    // The newest first: only it can imply the others.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (const int32_t other : needed) {
      if (other == kNobody) break;
      const auto of = static_cast<size_t>(list[static_cast<size_t>(other)].queue);
      if (done[of] >= other) continue;
      on[i].push_back(other);
      const Newest& then = done_of[static_cast<size_t>(other)];
      for (size_t q = 0; q < done.size(); ++q) done[q] = std::max(done[q], then[q]);
      done[of] = std::max(done[of], other);
    }
    last_of[queue] = instruction;
  }
}

}  // namespace

std::string_view name_of(graph::Queue queue) {
  static constexpr std::string_view kNames[] = {"compute", "communication"};
  return kNames[static_cast<size_t>(queue)];
}

Waits find_waits(std::span<const Access> list) {
  std::map<int32_t, std::vector<size_t>> by_loop;
  for (size_t i = 0; i < list.size(); ++i) by_loop[list[i].loop].push_back(i);
  std::vector<std::vector<int32_t>> on(list.size());
  Waits waits;
  waits.done.resize(list.size(), kNone);
  for (const auto& [loop, some] : by_loop) find_waits_of(list, some, on, waits.done);
  waits.first.push_back(0);
  for (const auto& others : on) {
    waits.on.insert(waits.on.end(), others.begin(), others.end());
    waits.first.push_back(static_cast<uint32_t>(waits.on.size()));
  }
  return waits;
}

}  // namespace strata::program
