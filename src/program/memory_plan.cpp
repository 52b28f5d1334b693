#include "program/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "tensor/arena.h"

namespace strata::program {
namespace {

struct Range {
  int64_t begin, end;
};

// Bytes in use, as ranges that neither overlap nor touch, in order. Adjacent buffers become one
// range, so that few remain however many buffers there are.
class Occupied {
 public:
  const std::vector<Range>& ranges() const { return ranges_; }

  void add(Range range) {
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                        [](const Range& each, int64_t begin) { return each.end < begin; });
    auto last = first;
    while (last != ranges_.end() && last->begin <= range.end) ++last;
    if (first == last) {
      ranges_.insert(first, range);
      return;
    }
    *first = {std::min(first->begin, range.begin), std::max((last - 1)->end, range.end)};
    ranges_.erase(first + 1, last);
  }

 private:
  std::vector<Range> ranges_;
};

// Memory in use over time: a segment tree over instructions. A node knows the bytes in use at any instruction
// of its interval and, of these, the bytes in use over the whole interval by buffers whose lifetimes no
// smaller set of nodes covers. Insertions and queries touch a number of nodes that grows with the logarithm
// of the program.
class Occupancy {
 public:
  explicit Occupancy(int32_t instructions) : instructions_(instructions) {
    size_t leaves = 1;
    while (leaves < static_cast<size_t>(instructions)) leaves *= 2;
    nodes_.resize(2 * leaves);
  }

  void add(const Lifetime& life, Range range) { add(1, 0, instructions_ - 1, life, range); }

  // Ranges in use at some instruction of the life, in no order; some overlap.
  void collect(const Lifetime& life, std::vector<Range>& ranges) const {
    collect(1, 0, instructions_ - 1, life, ranges);
  }

 private:
  struct Node {
    Occupied throughout, anytime;
  };

  void add(size_t at, int32_t first, int32_t last, const Lifetime& life, Range range) {
    nodes_[at].anytime.add(range);
    if (life.first <= first && last <= life.last) {
      nodes_[at].throughout.add(range);
      return;
    }
    const int32_t middle = first + (last - first) / 2;
    if (life.first <= middle) add(2 * at, first, middle, life, range);
    if (life.last > middle) add(2 * at + 1, middle + 1, last, life, range);
  }

  void collect(size_t at, int32_t first, int32_t last, const Lifetime& life,
               std::vector<Range>& ranges) const {
    const bool whole = life.first <= first && last <= life.last;
    const auto& held = (whole ? nodes_[at].anytime : nodes_[at].throughout).ranges();
    ranges.insert(ranges.end(), held.begin(), held.end());
    if (whole) return;
    const int32_t middle = first + (last - first) / 2;
    if (life.first <= middle) collect(2 * at, first, middle, life, ranges);
    if (life.last > middle) collect(2 * at + 1, middle + 1, last, life, ranges);
  }

  int32_t instructions_;
  std::vector<Node> nodes_;
};

int32_t instructions_of(std::span<const Lifetime> lifetimes) {
  int32_t end = 0;
  for (const Lifetime& life : lifetimes) end = std::max(end, life.last + 1);
  return end;
}

// Puts buffers one by one into the smallest gap that their time leaves open.
Layout place_in_order(std::span<const Lifetime> lifetimes, const std::vector<size_t>& order) {
  Layout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  Occupancy occupancy(instructions_of(lifetimes));
  std::vector<Range> busy;
  for (const size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const int64_t bytes = align_up(life.bytes, kBufferAlignment);
    if (bytes == 0) continue;
    busy.clear();
    occupancy.collect(life, busy);
    std::sort(busy.begin(), busy.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    int64_t at = 0;
    int64_t best = -1;
    int64_t best_gap = 0;
    for (const Range& other : busy) {
      const int64_t gap = other.begin - at;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.end);
    }
    layout.offsets[i] = best >= 0 ? best : at;
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + bytes);
    occupancy.add(life, {layout.offsets[i], layout.offsets[i] + bytes});
  }
  return layout;
}

}  // namespace

Alive most_alive(std::span<const Lifetime> lifetimes) {
  std::vector<int64_t> change(static_cast<size_t>(instructions_of(lifetimes)) + 1, 0);
  for (const Lifetime& life : lifetimes) {
    const int64_t bytes = align_up(life.bytes, kBufferAlignment);
    change[static_cast<size_t>(life.first)] += bytes;
    change[static_cast<size_t>(life.last) + 1] -= bytes;
  }
  Alive most;
  int64_t alive = 0;
  for (size_t i = 0; i < change.size(); ++i) {
    alive += change[i];
    if (alive > most.bytes) most = {alive, static_cast<int32_t>(i)};
  }
  return most;
}

Layout plan_memory(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const Alive most = most_alive(lifetimes);
  Layout layout = place_in_order(lifetimes, order);
  // No order can use less than the bytes alive at the same time.
  if (layout.bytes > most.bytes) {
    std::iota(order.begin(), order.end(), size_t{0});
    Layout first_come = place_in_order(lifetimes, order);
    if (first_come.bytes < layout.bytes) layout = std::move(first_come);
  }
  layout.peak_at = most.at;
  layout.alive_at_peak = most.bytes;
  return layout;
}

}  // namespace strata::program
