#include "kernels/cpu/key_selection.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/attention_targets.h"
#include "kernels/cpu/worker_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_selection.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/indexer_scores-inl.h"

#ifndef STRATA_KERNELS_CPU_KEY_SELECTION_ONCE
#define STRATA_KERNELS_CPU_KEY_SELECTION_ONCE
namespace strata::cpu::indexer {

using attention::Carver;
using attention::kKeys;
using attention::padded_columns;
using attention::tile_stride;

inline constexpr int64_t kSelectedRows = 24;  // of a task: few, so that their scores stay in the cache

struct SelectionScratch {
  SelectionScratch(Carver& carver, const IndexerShape& s)
      : score_stride(align_up(s.kv_len, kKeys) + 80),
        head_stride(kSelectedRows * tile_stride<float>(s.size)),
        q(carver.take<float>(s.heads * head_stride)),
        weights(carver.take<float>(kSelectedRows * s.heads)),
        keys_t(carver.take<float>(kKeys * s.size)),
        scores(carver.take<float>(kSelectedRows * score_stride)) {}
  int64_t score_stride, head_stride;
  float* q;        // [heads, rows, padded size]
  float* weights;  // [rows, heads], with the scale
  float* keys_t;   // panels of a block of keys
  float* scores;   // [rows, keys]; then their order as integers
};

}  // namespace strata::cpu::indexer
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::indexer::HWY_NAMESPACE {
namespace {

using tiles::I32;

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();

// Integers in the order of the scores: of NaN the least one.
HWY_INLINE auto ordered(Vector score) {
  const F32 d;
  const I32 di;
  const auto bits = hn::BitCast(di, hn::Add(score, hn::Zero(d)));  // -0 becomes +0
  const auto flipped = hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(di, 0x7fffffff)));
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(score)), hn::Set(di, kLeast), flipped);
}

// How many of n, a multiple of 4 · kLanes, are above a bound.
HWY_INLINE int64_t count_above(const int32_t* order, int64_t n, int32_t bound) {
  const I32 di;
  const auto limit = hn::Set(di, bound);
  auto a = hn::Zero(di), b = a, c = a, e = a;
  for (int64_t j = 0; j < n; j += 4 * kLanes) {
    a = hn::Sub(a, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, order + j), limit)));
    b = hn::Sub(b, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, order + j + kLanes), limit)));
    c = hn::Sub(c, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, order + j + 2 * kLanes), limit)));
    e = hn::Sub(e, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, order + j + 3 * kLanes), limit)));
  }
  return hn::GetLane(hn::SumOfLanes(di, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// The positions of the greatest `count` of n > count scores, of equals the first, plus `begin`. The scores, of which
// up to 64 more than n may be overwritten, become integers.
HWY_INLINE void select_greatest(float* scores, int64_t n, int64_t count, int64_t begin, int32_t* chosen) {
  const I32 di;
  auto* const order = reinterpret_cast<int32_t*>(scores);
  const int64_t padded = align_up(n, 4 * kLanes);
  int32_t least = std::numeric_limits<int32_t>::max(), most = kLeast;
  auto smallest = hn::Set(di, least), greatest = hn::Set(di, most);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const auto one = ordered(hn::LoadU(F32(), scores + j));
    smallest = hn::Min(smallest, one);
    greatest = hn::Max(greatest, one);
    hn::StoreU(one, di, order + j);
  }
  if (j < n) hn::StoreU(ordered(hn::LoadU(F32(), scores + j)), di, order + j);
  for (; j < n; ++j) {
    least = std::min(least, order[j]);
    most = std::max(most, order[j]);
  }
  std::fill(order + n, order + padded, kLeast);
  least = std::min(least, hn::GetLane(hn::MinOfLanes(di, smallest)));
  most = std::max(most, hn::GetLane(hn::MaxOfLanes(di, greatest)));
  // The greatest bound that at least `count` reach.
  int64_t low = least, high = most, above = -1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    const int64_t reach = count_above(order, padded, static_cast<int32_t>(middle - 1));
    if (reach >= count) {
      low = middle;
      if (reach == count) {
        above = 0;  // all that reach it are chosen
        break;
      }
    } else {
      high = middle - 1;
    }
  }
  const auto bound = static_cast<int32_t>(low);
  int64_t equals = above == 0 ? count : count - count_above(order, padded, bound);
  const auto limit = hn::Set(di, bound);
  int64_t found = 0;
  for (j = 0; found < count; j += kLanes) {
    const auto reaches = hn::Not(hn::Gt(limit, hn::LoadU(di, order + j)));
    if (hn::AllFalse(di, reaches)) continue;
    HWY_ALIGN uint8_t bytes[8] = {};
    hn::StoreMaskBits(di, reaches, bytes);
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, sizeof bits);
    for (; bits != 0 && found < count; bits &= bits - 1) {
      const int64_t at = j + static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(bits));
      if (order[at] == bound && equals-- <= 0) continue;
      chosen[found++] = static_cast<int32_t>(begin + at);
    }
  }
}

}  // namespace

HWY_ATTR void select(const IndexerShape& s, const IndexerInputs& in, int32_t* chosen, int64_t task,
                     void* memory) {
  Carver carver(memory);
  const SelectionScratch w(carver, s);
  const int64_t tasks = (s.q_len + kSelectedRows - 1) / kSelectedRows, sequence = task / tasks;
  const int64_t in_sequence = task % tasks * kSelectedRows,
                rows = std::min(kSelectedRows, s.q_len - in_sequence);
  const int64_t first = sequence * s.q_len + in_sequence;
  const SeenByRows<kSelectedRows> seen(s, in, sequence, in_sequence, rows);

  bool scored = false;
  for (int64_t r = 0; r < rows; ++r) {
    const SeenKeys& keys = seen.keys[r];
    int32_t* const to = chosen + (first + r) * s.count;
    scored = scored || keys.count() > s.count;
    if (keys.count() > s.count) continue;
    for (int64_t i = 0; i < s.count; ++i)
      to[i] = i < keys.count() ? static_cast<int32_t>(keys.begin + i) : -1;
  }
  if (!scored) return;

  const int64_t base = seen.begin;  // of the scores
  score_block(s, in, sequence, first, rows, seen, base, w);
  for (int64_t r = 0; r < rows; ++r) {
    const SeenKeys& keys = seen.keys[r];
    if (keys.count() > s.count)
      select_greatest(w.scores + r * w.score_stride + keys.begin - base, keys.count(), s.count, keys.begin,
                      chosen + (first + r) * s.count);
  }
}

}  // namespace strata::cpu::indexer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {
namespace indexer {
HWY_EXPORT(select);
}

KeySelectionPlan plan_key_selection(const IndexerShape& shape, const hardware::DeviceSpec& device) {
  STRATA_CHECK(
      shape.heads > 0 && shape.size > 0 && shape.count > 0 && shape.q_len % shape.q_pieces == 0,
      "[key selection] {} heads of {} columns, {} keys chosen, {} rows in {} chunks: expected sizes above 0 "
      "and equal chunks",
      shape.heads, shape.size, shape.count, shape.q_len, shape.q_pieces);
  KeySelectionPlan plan{.shape = shape, .threads = std::max(1, device.threads)};
  indexer::Carver carver(nullptr);
  indexer::SelectionScratch(carver, shape);
  plan.bytes = plan.threads * carver.used();
  return plan;
}

void select_keys(const KeySelectionPlan& plan, int32_t* chosen, const IndexerInputs& in, void* scratch) {
  const IndexerShape& s = plan.shape;
  if (s.q_len == 0) return;
  const auto select = HWY_DYNAMIC_DISPATCH(indexer::select);
  const int64_t tasks = (s.q_len + indexer::kSelectedRows - 1) / indexer::kSelectedRows;
  const int64_t bytes = plan.bytes / plan.threads;
  // The last rows, which see the most keys, first.
  for_each_task(s.sequences * tasks, plan.threads, [&](int64_t i, int64_t worker) {
    const int64_t task = i % s.sequences * tasks + tasks - 1 - i / s.sequences;
    select(s, in, chosen, task, static_cast<std::byte*>(scratch) + worker * bytes);
  });
}

}  // namespace strata::cpu
#endif
