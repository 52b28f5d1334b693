#include "program/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "tensor/arena.h"

namespace strata::program {
namespace {

struct Placed {
  int64_t begin, end;
};

// Puts buffers one by one into the lowest gap that their time leaves open.
Layout place_in_order(std::span<const Lifetime> lifetimes, const std::vector<size_t>& order) {
  Layout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> done;
  std::vector<Placed> busy;
  for (const size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const int64_t bytes = align_up(life.bytes, kBufferAlignment);
    if (bytes == 0) continue;
    busy.clear();
    for (const size_t j : done) {
      if (lifetimes[j].first <= life.last && life.first <= lifetimes[j].last) {
        busy.push_back(
            {layout.offsets[j], layout.offsets[j] + align_up(lifetimes[j].bytes, kBufferAlignment)});
      }
    }
    std::sort(busy.begin(), busy.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    int64_t at = 0;
    int64_t best = -1;
    int64_t best_gap = 0;
    for (const Placed& other : busy) {
      const int64_t gap = other.begin - at;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.end);
    }
    layout.offsets[i] = best >= 0 ? best : at;
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + bytes);
    done.push_back(i);
  }
  return layout;
}

void find_peak(std::span<const Lifetime> lifetimes, Layout& layout) {
  int32_t end = 0;
  for (const Lifetime& life : lifetimes) end = std::max(end, life.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(end) + 1, 0);
  for (const Lifetime& life : lifetimes) {
    const int64_t bytes = align_up(life.bytes, kBufferAlignment);
    change[static_cast<size_t>(life.first)] += bytes;
    change[static_cast<size_t>(life.last) + 1] -= bytes;
  }
  int64_t alive = 0;
  for (size_t i = 0; i < change.size(); ++i) {
    alive += change[i];
    if (alive > layout.alive_at_peak) {
      layout.alive_at_peak = alive;
      layout.peak_at = static_cast<int32_t>(i);
    }
  }
}

}  // namespace

Layout plan_memory(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Layout first_come = place_in_order(lifetimes, order);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  Layout largest_first = place_in_order(lifetimes, order);
  Layout layout = largest_first.bytes <= first_come.bytes ? std::move(largest_first) : std::move(first_come);
  find_peak(lifetimes, layout);
  return layout;
}

}  // namespace strata::program
