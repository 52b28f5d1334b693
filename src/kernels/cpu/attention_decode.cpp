// A few query rows against a long cache: keys and values are read once, straight from the cache, by as many
// tasks as it has splits; the partial results are then summed in the order of the keys.
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include <hwy/cache_control.h>

#include "kernels/cpu/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kStep = 64;  // keys between two looks at the greatest score
constexpr int64_t kMostColumns = kMostAttentionDim;

// scores[j] = Σ_c q[c] · keys[j, c], four keys at a time to hide the latency of addition.
template <typename T>
HWY_INLINE void dot_keys(float* scores, const float* HWY_RESTRICT q, const T* HWY_RESTRICT keys,
                         int64_t stride, int64_t n, int64_t columns) {
  const F32 d;
  const int64_t whole = columns / kLanes * kLanes;
  const auto finish = [&](Vector sum, const T* key) HWY_ATTR {
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (int64_t c = whole; c < columns; ++c) total += q[c] * static_cast<float>(key[c]);
    return total;
  };
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const T* key = keys + j * stride;
    Vector s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t c = 0; c < whole; c += kLanes) {
      const Vector x = hn::LoadU(d, q + c);
      s0 = hn::MulAdd(x, load(key + c), s0);
      s1 = hn::MulAdd(x, load(key + stride + c), s1);
      s2 = hn::MulAdd(x, load(key + 2 * stride + c), s2);
      s3 = hn::MulAdd(x, load(key + 3 * stride + c), s3);
    }
    scores[j] = finish(s0, key);
    scores[j + 1] = finish(s1, key + stride);
    scores[j + 2] = finish(s2, key + 2 * stride);
    scores[j + 3] = finish(s3, key + 3 * stride);
  }
  for (; j < n; ++j) {
    const T* key = keys + j * stride;
    Vector sum = hn::Zero(d);
    for (int64_t c = 0; c < whole; c += kLanes) sum = hn::MulAdd(hn::LoadU(d, q + c), load(key + c), sum);
    scores[j] = finish(sum, key);
  }
}

// sums[:] = factor · sums[:] + Σ_j weights[j] · values[j, :], four vectors of columns at a time.
template <typename T>
HWY_INLINE void add_values(float* HWY_RESTRICT sums, const float* HWY_RESTRICT weights,
                           const T* HWY_RESTRICT values, int64_t stride, int64_t n, int64_t columns,
                           float factor) {
  const F32 d;
  const Vector f = hn::Set(d, factor);
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    Vector s0 = hn::Mul(f, hn::LoadU(d, sums + c));
    Vector s1 = hn::Mul(f, hn::LoadU(d, sums + c + kLanes));
    Vector s2 = hn::Mul(f, hn::LoadU(d, sums + c + 2 * kLanes));
    Vector s3 = hn::Mul(f, hn::LoadU(d, sums + c + 3 * kLanes));
    for (int64_t j = 0; j < n; ++j) {
      const Vector p = hn::Set(d, weights[j]);
      const T* value = values + j * stride + c;
      s0 = hn::MulAdd(p, load(value), s0);
      s1 = hn::MulAdd(p, load(value + kLanes), s1);
      s2 = hn::MulAdd(p, load(value + 2 * kLanes), s2);
      s3 = hn::MulAdd(p, load(value + 3 * kLanes), s3);
    }
    hn::StoreU(s0, d, sums + c);
    hn::StoreU(s1, d, sums + c + kLanes);
    hn::StoreU(s2, d, sums + c + 2 * kLanes);
    hn::StoreU(s3, d, sums + c + 3 * kLanes);
  }
  for (; c + kLanes <= columns; c += kLanes) {
    Vector sum = hn::Mul(f, hn::LoadU(d, sums + c));
    for (int64_t j = 0; j < n; ++j)
      sum = hn::MulAdd(hn::Set(d, weights[j]), load(values + j * stride + c), sum);
    hn::StoreU(sum, d, sums + c);
  }
  for (; c < columns; ++c) {
    float sum = factor * sums[c];
    for (int64_t j = 0; j < n; ++j) sum += weights[j] * static_cast<float>(values[j * stride + c]);
    sums[c] = sum;
  }
}

// weights[j] = 2^(score - greatest so far) for j < n; returns the factor for what was summed before.
HWY_INLINE float soften(float* HWY_RESTRICT scores, int64_t n, float& row_max, float& row_sum) {
  const F32 d;
  for (int64_t j = n; j < align_up(n, kLanes); ++j) scores[j] = kNone;
  Vector most = hn::Set(d, row_max);
  for (int64_t j = 0; j < n; j += kLanes) most = hn::Max(most, hn::LoadU(d, scores + j));
  most = hn::MaxOfLanes(d, most);
  Vector sum = hn::Zero(d);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vector p = exp2(hn::Sub(hn::LoadU(d, scores + j), most));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, scores + j);
  }
  const float factor = hn::GetLane(exp2(hn::Sub(hn::Set(d, row_max), most)));
  row_max = hn::GetLane(most);
  row_sum = row_sum * factor + hn::GetLane(hn::SumOfLanes(d, sum));
  return factor;
}

// Asks for `n` rows of the cache ahead of their use: a head's part of a row is a few lines, one row far from
// the next, which no processor guesses.
template <typename T>
HWY_INLINE void fetch_rows(const T* rows, int64_t stride, int64_t n, int64_t columns) {
  const auto bytes = columns * static_cast<int64_t>(sizeof(T));
  for (int64_t j = 0; j < n; ++j) {
    const auto* const row = reinterpret_cast<const std::byte*>(rows + j * stride);
    for (int64_t byte = 0; byte < bytes; byte += 64) hwy::Prefetch(row + byte);
  }
}

// Rows of a task: (head of the group, query), the query fastest.
template <typename T>
HWY_NOINLINE void split_of(const Call& call, const T* k, const T* v, int64_t b, int64_t kv_head,
                           int64_t begin, int64_t end, float* sums, float* row_max, float* row_sum) {
  const AttentionShape& s = call.shape;
  const int64_t rows = call.group * s.q_len;
  const int64_t stride = padded_columns<float>(s.head_dim), value_stride = padded_columns<float>(s.value_dim);
  int64_t lo[kRows], hi[kRows];
  visible_keys(call, b, 0, s.q_len, lo, hi);
  std::fill_n(sums, rows * value_stride, 0.0f);
  std::fill_n(row_max, rows, kNone);
  std::fill_n(row_sum, rows, 0.0f);
  float q[kMostDecodeRows * kMostColumns];
  float scores[kStep];
  for (int64_t g = 0; g < call.group; ++g) {
    pack_rows(q + g * s.q_len * stride, stride, call.in.q, s.dtype,
              call.q_offset(b, 0, kv_head * call.group + g), s.q_stride, s.q_len, s.q_len, s.head_dim,
              s.scale * kLog2e);
  }
  begin = std::max(begin, lo[0]);
  end = std::min(end, hi[s.q_len - 1]);
  for (int64_t j0 = begin / kStep * kStep; j0 < end; j0 += kStep) {
    const int64_t here = std::max(j0, begin), next = std::min(j0 + kStep, end);
    fetch_rows(v + call.v_offset(b, here, kv_head), s.v_stride, next - here, s.value_dim);
    fetch_rows(k + call.k_offset(b, next, kv_head), s.k_stride, std::min(next + kStep, end) - next,
               s.head_dim);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = std::max({j0, begin, lo[row % s.q_len]});
      const int64_t n = std::min({j0 + kStep, end, hi[row % s.q_len]}) - first;
      if (n <= 0) continue;
      dot_keys(scores, q + row * stride, k + call.k_offset(b, first, kv_head), s.k_stride, n, s.head_dim);
      if (s.softcap > 0) {
        cap_scores(scores, 0, n, s.softcap * kLog2e);
      } else if (call.in.bias != nullptr) {
        const int64_t head = kv_head * call.group + row / s.q_len;
        add_scaled(scores, call.in.bias + head * s.bias_width + call.bias_index(b, row % s.q_len, first),
                   kLog2e, n);
      }
      const float factor = soften(scores, n, row_max[row], row_sum[row]);
      add_values(sums + row * value_stride, scores, v + call.v_offset(b, first, kv_head), s.v_stride, n,
                 s.value_dim, factor);
    }
  }
}

}  // namespace

// Task: (sequence, key–value head, split).
HWY_ATTR void decode(const Call& call, int64_t task, const DecodeScratch& w) {
  const AttentionShape& s = call.shape;
  const int64_t split = task % w.splits;
  const int64_t kv_head = task / w.splits % s.kv_heads;
  const int64_t b = task / w.splits / s.kv_heads;
  const int64_t part = task * w.rows;
  with_type(s.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_reference_t<decltype(*type)>;
    split_of(call, static_cast<T*>(call.in.k), static_cast<T*>(call.in.v), b, kv_head, split * kSplit,
             (split + 1) * kSplit, w.sums + part * padded_columns<float>(s.value_dim), w.row_max + part,
             w.row_sum + part);
  });
}

// Task: (sequence, key–value head).
HWY_ATTR void combine(const Call& call, int64_t task, const DecodeScratch& w) {
  const F32 d;
  const AttentionShape& s = call.shape;
  const int64_t b = task / s.kv_heads, kv_head = task % s.kv_heads;
  const int64_t columns = padded_columns<float>(s.value_dim);
  float total[kMostColumns];
  for (int64_t row = 0; row < w.rows; ++row) {
    const auto part = [&](int64_t split) { return (task * w.splits + split) * w.rows + row; };
    float most = kNone;
    for (int64_t split = 0; split < w.splits; ++split) most = std::max(most, w.row_max[part(split)]);
    std::fill_n(total, columns, 0.0f);
    float sum = 0.0f;
    for (int64_t split = 0; split < w.splits; ++split) {
      if (w.row_sum[part(split)] == 0.0f) continue;  // no key; a NaN goes through
      const float factor = std::exp2(w.row_max[part(split)] - most);
      sum += factor * w.row_sum[part(split)];
      for (int64_t c = 0; c < columns; c += kLanes) {
        const Vector x = hn::LoadU(d, w.sums + part(split) * columns + c);
        hn::StoreU(hn::MulAdd(hn::Set(d, factor), x, hn::LoadU(d, total + c)), d, total + c);
      }
    }
    const int64_t head = kv_head * call.group + row / s.q_len, i = row % s.q_len;
    const FinishedRow done = finished_row(most, sum, call.in.sinks, head);
    unpack_row(call.out, s.dtype, call.out_offset(b, i, head), total, s.value_dim, done.factor);
    call.lse[call.row_index(b, i, head)] = done.lse;
  }
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::attention {
HWY_EXPORT(decode);
HWY_EXPORT(combine);

void decode_split(const Call& call, int64_t task, const DecodeScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(decode)(call, task, scratch);
}
void decode_combine(const Call& call, int64_t task, const DecodeScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(combine)(call, task, scratch);
}
}  // namespace strata::cpu::attention
#endif
