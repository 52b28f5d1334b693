// Forward pass: a task multiplies a chunk of query rows, of all heads of a group, by one packed block of keys
// after the other.
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace {

// Turns the scores of row r, in columns [begin, end) of its tile, into weights relative to the maximum score
// so far; keys outside [first, last) get weight 0. Returns the factor to rescale earlier sums by.
HWY_INLINE float soften_row(float* HWY_RESTRICT row, int64_t begin, int64_t end, int64_t first, int64_t last,
                            float& row_max, float& row_sum) {
  const F32 d;
  if (first >= last) {
    for (int64_t j = begin; j < end; j += kLanes) hn::StoreU(hn::Zero(d), d, row + j);
    return 1.0f;
  }
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t j = begin; j < first; ++j) row[j] = kNone;
  for (int64_t j = last; j < end; ++j) row[j] = kNone;

  Vector max0 = hn::Set(d, kNone), max1 = max0;
  for (int64_t j = begin; j < end; j += kPanel) {
    max0 = hn::Max(max0, hn::LoadU(d, row + j));
    max1 = hn::Max(max1, hn::LoadU(d, row + j + kLanes));
  }
  const Vector new_max = hn::Max(hn::Set(d, row_max), hn::MaxOfLanes(d, hn::Max(max0, max1)));
  Vector sum0 = hn::Zero(d), sum1 = sum0;
  for (int64_t j = begin; j < end; j += kPanel) {
    const Vector p0 = exp2(hn::Sub(hn::LoadU(d, row + j), new_max));
    const Vector p1 = exp2(hn::Sub(hn::LoadU(d, row + j + kLanes), new_max));
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
    hn::StoreU(p0, d, row + j);
    hn::StoreU(p1, d, row + j + kLanes);
  }
  const float factor = hn::GetLane(exp2(hn::Sub(hn::Set(d, row_max), new_max)));
  row_max = hn::GetLane(new_max);
  row_sum = row_sum * factor + hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  return factor;
}

// The greatest of the scores of a row in columns [begin, end).
HWY_INLINE float greatest_of(const float* HWY_RESTRICT row, int64_t begin, int64_t end, float so_far) {
  const F32 d;
  Vector most = hn::Set(d, so_far);
  int64_t j = begin;
  for (; j + kLanes <= end; j += kLanes) most = hn::Max(most, hn::LoadU(d, row + j));
  float greatest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; j < end; ++j) greatest = std::max(greatest, row[j]);
  return greatest;
}

// Task: (chunk, sequence, key–value head); chunks with the most keys come first.
template <typename Math>
HWY_INLINE void forward(const Math& math, const Call& call, int64_t task, void* memory) {
  const AttentionShape& s = call.shape;
  Carver carver(memory);
  const ForwardScratch<typename Math::Packed> w(carver, s, call.plan.query_chunk);
  const int64_t chunks = ceil_div(s.q_len, call.plan.query_chunk);
  const int64_t chunk = chunks - 1 - task / (s.batch * s.kv_heads);
  const int64_t b = task / s.kv_heads % s.batch;
  const int64_t kv_head = task % s.kv_heads;
  const int64_t first = chunk * call.plan.query_chunk;
  const int64_t rows = std::min(call.plan.query_chunk, s.q_len - first);
  const int64_t blocks = ceil_div(rows, kRows);
  const int64_t stride = Math::row_stride(s.head_dim), value_stride = tile_stride<float>(s.value_dim);
  visible_keys(call, b, first, rows, w.lo, w.hi);

  for (int64_t g = 0; g < call.group; ++g) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * kRows;
      math.pack_queries(w.q + (g * blocks * kRows + row) * stride,
                        {call.in.q, call.q_offset(b, first + row, kv_head * call.group + g), s.q_stride,
                         std::min(kRows, rows - row), s.head_dim});
    }
  }
  const int64_t all_rows = call.group * blocks * kRows;
  std::fill_n(w.sums, all_rows * value_stride, 0.0f);
  std::fill_n(w.row_max, all_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(w.row_sum, all_rows, 0.0f);
  // Where scores change before the softmax, the maxima that it takes are not those of q · k.
  const bool changes_scores = s.softcap > 0 || call.in.bias != nullptr;
  if (s.finds_greatest) std::fill_n(w.greatest, call.group, -std::numeric_limits<float>::infinity());

  const float* bias = call.in.bias != nullptr ? call.in.bias + kv_head * call.group * s.bias_width : nullptr;
  const int64_t end = w.hi[rows - 1];
  for (int64_t j0 = w.lo[0] / kKeys * kKeys; j0 < end; j0 += kKeys) {
    const int64_t keys = std::min(kKeys, end - j0);
    math.pack_across(w.keys, {call.in.k, call.k_offset(b, j0, kv_head), s.k_stride, keys, s.head_dim});
    math.pack_values(w.values, {call.in.v, call.v_offset(b, j0, kv_head), s.v_stride, keys, s.value_dim});
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t* lo = w.lo + block * kRows;
      const int64_t* hi = w.hi + block * kRows;
      const typename Math::KeyRanges ranges(lo, hi, j0, keys);
      if (!ranges.any) continue;
      for (int64_t g = 0; g < call.group; ++g) {
        const int64_t row = (g * blocks + block) * kRows;
        math.query_scores(w.scores, w.q + row * stride, w.keys, keys, s.head_dim, ranges);
        float factor[kRows];
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t t = r / Math::kTileRows;
          float* scores = w.scores + r * kScoreStride;
          const int64_t begin = std::clamp<int64_t>(lo[r] - j0, 0, keys);
          const int64_t last = std::clamp<int64_t>(hi[r] - j0, 0, keys);
          if (s.finds_greatest && changes_scores)
            w.greatest[g] = greatest_of(scores, begin, last, w.greatest[g]);
          if (s.softcap > 0) {
            cap_scores(scores, ranges.panel_begin(t), ranges.panel_end(t), s.softcap * kLog2e);
          } else if (bias != nullptr && begin < last) {
            const int64_t at = call.bias_index(b, first + block * kRows + r, j0 + begin);
            add_scaled(scores + begin, bias + g * s.bias_width + at, kLog2e, last - begin);
          }
          factor[r] = soften_row(scores, ranges.panel_begin(t), ranges.panel_end(t), begin, last,
                                 w.row_max[row + r], w.row_sum[row + r]);
        }
        math.template add_down<Start::kScaledSum>(w.sums + row * value_stride, value_stride, w.scores,
                                                  w.values, s.value_dim, ranges, factor);
      }
    }
  }

  for (int64_t g = 0; g < call.group; ++g) {
    const int64_t head = kv_head * call.group + g;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = g * blocks * kRows + r;
      const FinishedRow done = finished_row(w.row_max[row], w.row_sum[row], call.in.sinks, head);
      unpack_row(call.out, s.dtype, call.out_offset(b, first + r, head), w.sums + row * value_stride,
                 s.value_dim, done.factor);
      call.lse[call.row_index(b, first + r, head)] = done.lse;
      if (s.finds_greatest && !changes_scores) w.greatest[g] = std::max(w.greatest[g], w.row_max[row]);
    }
    if (s.finds_greatest) call.chunk_greatest[(b * s.heads + head) * chunks + chunk] = w.greatest[g] * kLn2;
  }
}

}  // namespace

HWY_ATTR void forward_by_products(const Call& call, int64_t task, void* memory) {
  by_products(call, [&](const auto& math) HWY_ATTR { forward(math, call, task, memory); });
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::attention {
HWY_EXPORT(forward_by_products);

int64_t forward_tasks(const Call& call) {
  return call.shape.batch * call.shape.kv_heads * ceil_div(call.shape.q_len, call.plan.query_chunk);
}
void forward_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(forward_by_products)(call, task, memory);
}
}  // namespace strata::cpu::attention
#endif
