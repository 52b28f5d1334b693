#include "program/slots.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace strata::program {

std::string name_of(const Pool& pool) {
  return std::string(1, letter_of(pool.from)) + "→" + letter_of(pool.to);
}

// The graph of overlapping spans is an interval graph: taken in the order of their beginnings, any free slot
// does, and no more are opened than overlap at once.
Slots color(const std::vector<Span>& spans) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return spans[a].first < spans[b].first; });
  Slots slots;
  slots.of.resize(spans.size());
  struct Use {
    int32_t last, slot;
  };
  const auto later = [](const Use& a, const Use& b) { return a.last > b.last; };
  std::priority_queue<Use, std::vector<Use>, decltype(later)> in_use(later);  // the first to end on top
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free;    // the lowest on top
  for (const size_t i : order) {
    for (; !in_use.empty() && in_use.top().last < spans[i].first; in_use.pop()) free.push(in_use.top().slot);
    if (free.empty()) free.push(slots.count++);
    slots.of[i] = free.top();
    free.pop();
    in_use.push({spans[i].last, slots.of[i]});
  }
  return slots;
}

std::vector<Pool> make_pools(const Script& script, int32_t micro_batches, Backward backward) {
  if (is_sequential(script)) return {};
  std::vector<Pool> pools;
  if (backward == Backward::kCombined) {
    pools.push_back({.from = Segment::kForward, .to = Segment::kBackward});
  } else {
    pools.push_back({.from = Segment::kForward, .to = Segment::kInputGrad});
    pools.push_back({.from = Segment::kForward, .to = Segment::kWeightGrad});
    pools.push_back({.from = Segment::kInputGrad, .to = Segment::kWeightGrad});
  }
  for (Pool& pool : pools) {
    Slots slots = color(spans_of(script, micro_batches, pool.from, pool.to));
    pool.slots = slots.count;
    pool.slot_of = std::move(slots.of);
  }
  return pools;
}

}  // namespace strata::program
