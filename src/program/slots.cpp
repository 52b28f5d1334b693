#include "program/slots.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "tensor/arena.h"

namespace strata::program {

// The overlap graph of intervals is an interval graph: taken in the order of their beginnings, any free entry
// does, and the number of entries is the largest number of overlapping intervals.
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

namespace {

std::string text_of(const SegmentAt& at) {
  const std::string letter(1, letter_of(at.segment));
  return at.chunk == 0 ? letter : letter + "/" + std::to_string(at.chunk);
}

bool are_of_one_chunk(std::span<const SegmentAt> segments) {
  return std::all_of(segments.begin(), segments.end(),
                     [&](const SegmentAt& at) { return at.chunk == segments.front().chunk; });
}

std::string name_of(std::span<const SegmentAt> segments) {
  if (are_of_one_chunk(segments))
    return text_of(segments.front().segment) + "→" + text_of(segments.back().segment);
  std::string name = text_of(segments.front()) + "→";
  for (const SegmentAt& at : segments.subspan(1)) name += text_of(at);
  return name;
}

}  // namespace

Pools::Pools(const Script& script, int32_t micro_batches, int32_t chunks, Backward backward)
    : script_(script), micro_batches_(micro_batches), chunks_(chunks), overlap_(!is_sequential(script)) {
  if (!overlap_) return;
  constexpr SegmentAt kF = Segment::kForward, kB = Segment::kBackward, kI = Segment::kInputGrad,
                      kW = Segment::kWeightGrad;
  if (backward == Backward::kCombined) {
    of(std::array{kF, kB});
  } else {
    of(std::array{kF, kI});
    of(std::array{kF, kW});
    of(std::array{kI, kW});
  }
}

Pool Pools::make(std::span<const SegmentAt> segments) const {
  Pool pool{.name = name_of(segments), .chunks = chunks_};
  const bool of_each_chunk = are_of_one_chunk(segments);
  std::vector<Span> spans;
  for (int32_t chunk = 0; chunk < (of_each_chunk ? chunks_ : 1); ++chunk) {
    std::vector<SegmentAt> of_chunk(segments.begin(), segments.end());
    for (SegmentAt& at : of_chunk) at.chunk = of_each_chunk ? chunk : at.chunk;
    const auto mine = spans_of(script_, micro_batches_, of_chunk);
    spans.insert(spans.end(), mine.begin(), mine.end());
  }
  const Slots slots = color(spans);
  pool.slots = slots.count;
  for (int32_t i = 0; i < micro_batches_; ++i) {
    for (int32_t chunk = 0; chunk < chunks_; ++chunk)
      pool.slot_of.push_back(slots.of[static_cast<size_t>(of_each_chunk ? chunk * micro_batches_ + i : i)]);
  }
  return pool;
}

size_t Pools::of(std::span<const SegmentAt> segments) {
  const std::string name = name_of(segments);
  for (size_t i = 0; i < pools_.size(); ++i) {
    if (pools_[i].name == name) return i;
  }
  return add(make(segments));
}

size_t Pools::add(Pool pool) {
  pools_.push_back(std::move(pool));
  filled_.emplace_back(static_cast<size_t>(chunks_), 0);
  return pools_.size() - 1;
}

int64_t Pools::add_value(size_t pool, int32_t chunk, int64_t bytes) {
  int64_t& filled = filled_[pool][static_cast<size_t>(chunk)];
  const int64_t at = filled;
  filled += align_up(bytes, kBufferAlignment);
  pools_[pool].slot_bytes = std::max(pools_[pool].slot_bytes, filled);
  return at;
}

int64_t Pools::bytes() const {
  int64_t bytes = 0;
  for (const Pool& pool : pools_) bytes += pool.bytes();
  return bytes;
}

void Pools::lay_out() {
  int64_t offset = 0;
  for (Pool& pool : pools_) {
    pool.offset = offset;
    offset += pool.bytes();
  }
}

}  // namespace strata::program
