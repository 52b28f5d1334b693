// Decoding: a few query rows against a long cache. Keys and values are read once, directly from the cache, by
// one task per split of the cache; the partial results are then summed in the order of the keys.
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/function_ref.h"
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kStep = 64;  // keys between two updates of the maximum score
constexpr int64_t kMostColumns = kMostAttentionDim;

constexpr int64_t kLine = 64;  // bytes

// Rows of the cache to prefetch, a few lines at a time between other work, which many lines together would
// stall.
class RowsAhead {
 public:
  RowsAhead(const void* rows, int64_t stride_bytes, int64_t count, int64_t row_bytes)
      : row_(static_cast<const std::byte*>(rows)),
        stride_(stride_bytes),
        left_(count),
        row_bytes_(row_bytes) {}

  HWY_INLINE void ask(int64_t lines) {
    for (; lines > 0 && left_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --left_;
    }
  }

 private:
  const std::byte* row_;
  int64_t stride_, left_, row_bytes_, at_ = 0;
};

// Query rows to compute together, so that a key or value is loaded and widened once for all of them.
constexpr int kTogether = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;

// scores[r, j] = Σ_c q[r, c] · keys[j, c] for kN keys from j on.
template <int kTheseRows, int kN, typename T>
HWY_INLINE void dot_some(float* scores, const float* HWY_RESTRICT q, int64_t q_stride,
                         const T* HWY_RESTRICT keys, int64_t stride, int64_t j, int64_t columns) {
  const F32 d;
  const int64_t whole = columns / kLanes * kLanes;
  keys += j * stride;
  Vector sums[kTheseRows][kN];
#pragma GCC unroll 4
  for (int r = 0; r < kTheseRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i) sums[r][i] = hn::Zero(d);
  }
  for (int64_t c = 0; c < whole; c += kLanes) {
    Vector key[kN];
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i) key[i] = load(keys + i * stride + c);
#pragma GCC unroll 4
    for (int r = 0; r < kTheseRows; ++r) {
      const Vector x = hn::LoadU(d, q + r * q_stride + c);
#pragma GCC unroll 4
      for (int i = 0; i < kN; ++i) sums[r][i] = hn::MulAdd(x, key[i], sums[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kTheseRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i) {
      float total = hn::GetLane(hn::SumOfLanes(d, sums[r][i]));
      for (int64_t c = whole; c < columns; ++c)
        total += q[r * q_stride + c] * static_cast<float>(keys[i * stride + c]);
      scores[r * kStep + j + i] = total;
    }
  }
}

// Like dot_some(), for n keys, four at a time to hide the latency of addition.
template <int kTheseRows, typename T>
HWY_INLINE void dot_keys(float* scores, const float* q, int64_t q_stride, const T* keys, int64_t stride,
                         int64_t n, int64_t columns, RowsAhead& ahead) {
  const int64_t lines = 4 * columns * int64_t{sizeof(T)} / kLine + 1;  // of four keys
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    ahead.ask(lines);
    dot_some<kTheseRows, 4>(scores, q, q_stride, keys, stride, j, columns);
  }
  for (; j < n; ++j) dot_some<kTheseRows, 1>(scores, q, q_stride, keys, stride, j, columns);
}

// sums[r, c…] = factors[r] · sums[r, c…] + Σ_j weights[r, j] · values[j, c…], kN vectors of columns at a
// time.
template <int kTheseRows, int kN, typename T>
HWY_INLINE void add_columns(float* HWY_RESTRICT sums, int64_t sums_stride, const float* HWY_RESTRICT weights,
                            const T* HWY_RESTRICT values, int64_t stride, int64_t n, int64_t c,
                            const float* factors, RowsAhead& ahead) {
  const F32 d;
  Vector s[kTheseRows][kN];
#pragma GCC unroll 4
  for (int r = 0; r < kTheseRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i)
      s[r][i] = hn::Mul(hn::Set(d, factors[r]), hn::LoadU(d, sums + r * sums_stride + c + i * kLanes));
  }
  for (int64_t j = 0; j < n; ++j) {
    ahead.ask(std::max<int64_t>(1, kN * kLanes * int64_t{sizeof(T)} / kLine));
    Vector value[kN];
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i) value[i] = load(values + j * stride + c + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kTheseRows; ++r) {
      const Vector p = hn::Set(d, weights[r * kStep + j]);
#pragma GCC unroll 4
      for (int i = 0; i < kN; ++i) s[r][i] = hn::MulAdd(p, value[i], s[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kTheseRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kN; ++i) hn::StoreU(s[r][i], d, sums + r * sums_stride + c + i * kLanes);
  }
}

// Adds the weighted values in all columns.
template <int kTheseRows, typename T>
HWY_INLINE void add_values(float* HWY_RESTRICT sums, int64_t sums_stride, const float* HWY_RESTRICT weights,
                           const T* HWY_RESTRICT values, int64_t stride, int64_t n, int64_t columns,
                           const float* factors, RowsAhead& ahead) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes)
    add_columns<kTheseRows, 4>(sums, sums_stride, weights, values, stride, n, c, factors, ahead);
  for (; c + kLanes <= columns; c += kLanes)
    add_columns<kTheseRows, 1>(sums, sums_stride, weights, values, stride, n, c, factors, ahead);
  for (; c < columns; ++c) {
    for (int64_t r = 0; r < kTheseRows; ++r) {
      float sum = factors[r] * sums[r * sums_stride + c];
      for (int64_t j = 0; j < n; ++j)
        sum += weights[r * kStep + j] * static_cast<float>(values[j * stride + c]);
      sums[r * sums_stride + c] = sum;
    }
  }
}

// weights[j] = 2^(score - maximum so far) for j < n; returns the factor to rescale earlier sums by.
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

// Partial result of one key–value head. Rows: (head of the group, query), query fastest.
struct Part {
  float *sums, *row_max, *row_sum;
};

// Memory that the next step reads, to prefetch.
struct Next {
  RowsAhead keys, values;
  void ask_rest() {
    constexpr auto kAll = std::numeric_limits<int64_t>::max();
    keys.ask(kAll);
    values.ask(kAll);
  }
};

// Keys [lo, hi) that each query sees.
struct Visible {
  int64_t lo[kRows], hi[kRows];
};

// Adds the keys [begin, end) of one step to the partial results of kTheseRows consecutive heads for one
// query.
template <int kTheseRows, typename T>
HWY_INLINE void add_rows(const Call& call, const T* k, const T* v, int64_t b, int64_t kv_head, int64_t row,
                         const float* q, int64_t begin, int64_t end, const Part& part, Next& next) {
  const AttentionShape& s = call.shape;
  const int64_t q_stride = s.q_len * padded_columns<float>(s.head_dim);
  const int64_t value_stride = padded_columns<float>(s.value_dim);
  const int64_t n = end - begin;
  float scores[kTheseRows * kStep], factors[kTheseRows];
  dot_keys<kTheseRows>(scores, q, q_stride, k + call.k_offset(b, begin, kv_head), s.k_stride, n, s.head_dim,
                       next.keys);
  for (int64_t r = 0; r < kTheseRows; ++r) {
    const int64_t at = row + r * s.q_len;
    float* const of_row = scores + r * kStep;
    if (s.softcap > 0) {
      cap_scores(of_row, 0, n, s.softcap * kLog2e);
    } else if (call.in.bias != nullptr) {
      const int64_t head = kv_head * call.group + at / s.q_len;
      add_scaled(of_row, call.in.bias + head * s.bias_width + call.bias_index(b, at % s.q_len, begin), kLog2e,
                 n);
    }
    factors[r] = soften(of_row, n, part.row_max[at], part.row_sum[at]);
  }
  add_values<kTheseRows>(part.sums + row * value_stride, s.q_len * value_stride, scores,
                         v + call.v_offset(b, begin, kv_head), s.v_stride, n, s.value_dim, factors,
                         next.values);
}

// Like add_rows(), for all queries and heads of the group.
template <typename T>
HWY_NOINLINE void add_step(const Call& call, const T* k, const T* v, int64_t b, int64_t kv_head,
                           const Visible& seen, int64_t begin, int64_t end, const Part& part, Next next) {
  const AttentionShape& s = call.shape;
  const int64_t stride = padded_columns<float>(s.head_dim);
  float q[kMostDecodeRows * kMostColumns];
  for (int64_t g = 0; g < call.group; ++g) {
    pack_rows(q + g * s.q_len * stride, stride, call.in.q, s.dtype,
              call.q_offset(b, 0, kv_head * call.group + g), s.q_stride, s.q_len, s.q_len, s.head_dim,
              s.scale * kLog2e);
  }
  for (int64_t i = 0; i < s.q_len; ++i) {
    const int64_t first = std::max(begin, seen.lo[i]), last = std::min(end, seen.hi[i]);
    if (first >= last) continue;
    int64_t g = 0;
    const auto rows = [&]<int kTheseRows>() HWY_ATTR {
      const int64_t row = g * s.q_len + i;
      add_rows<kTheseRows>(call, k, v, b, kv_head, row, q + row * stride, first, last, part, next);
      g += kTheseRows;
    };
    while (g + kTogether <= call.group) rows.template operator()<kTogether>();
    if constexpr (kTogether > 2) {
      if (call.group - g == 3) rows.template operator()<3>();
      if (call.group - g == 2) rows.template operator()<2>();
    }
    while (g < call.group) rows.template operator()<1>();
  }
  next.ask_rest();
}

// Computes some key–value heads together over the keys of one split, so that they read the cache's rows as
// one stream. Each head's result is the same as if computed separately.
template <typename T>
void split_of(const Call& call, const T* k, const T* v, int64_t b, int64_t first_head, int64_t heads,
              int64_t begin, int64_t end, FunctionRef<Part(int64_t)> part_of) {
  const AttentionShape& s = call.shape;
  const int64_t rows = call.group * s.q_len;
  Visible seen;
  visible_keys(call, b, 0, s.q_len, seen.lo, seen.hi);
  for (int64_t head = first_head; head < first_head + heads; ++head) {
    const Part part = part_of(head);
    std::fill_n(part.sums, rows * padded_columns<float>(s.value_dim), 0.0f);
    std::fill_n(part.row_max, rows, kNone);
    std::fill_n(part.row_sum, rows, 0.0f);
  }
  begin = std::max(begin, seen.lo[0]);
  end = std::min(end, seen.hi[s.q_len - 1]);
  // Share of the rows [from, to), which all heads need, that one head's arithmetic hides.
  const auto share = [&](int64_t from, int64_t to, int64_t index) {
    const int64_t lo = from + (to - from) * index / heads, hi = from + (to - from) * (index + 1) / heads;
    constexpr int64_t kSize = sizeof(T);
    return Next{
        {k + call.k_offset(b, lo, first_head), s.k_stride * kSize, hi - lo, heads * s.head_dim * kSize},
        {v + call.v_offset(b, lo, first_head), s.v_stride * kSize, hi - lo, heads * s.value_dim * kSize}};
  };
  for (int64_t here = begin, next = 0; here < end; here = next) {
    next = std::min(here / kStep * kStep + kStep, end);
    if (here == begin) {
      for (int64_t index = 0; index < heads; ++index) share(here, next, index).ask_rest();
    }
    for (int64_t index = 0; index < heads; ++index) {
      add_step(call, k, v, b, first_head + index, seen, here, next, part_of(first_head + index),
               share(next, std::min(next + kStep, end), index));
    }
  }
}

}  // namespace

// Task: (sequence, group of key–value heads, split).
HWY_ATTR void decode(const Call& call, int64_t task, const DecodeScratch& w) {
  const AttentionShape& s = call.shape;
  const int64_t split = task % w.splits;
  const int64_t groups = s.kv_heads / w.heads;
  const int64_t first_head = task / w.splits % groups * w.heads;
  const int64_t b = task / w.splits / groups;
  const auto part_of = [&](int64_t head) {
    const int64_t part = ((b * s.kv_heads + head) * w.splits + split) * w.rows;
    return Part{w.sums + part * padded_columns<float>(s.value_dim), w.row_max + part, w.row_sum + part};
  };
  with_type(s.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_reference_t<decltype(*type)>;
    split_of(call, static_cast<T*>(call.in.k), static_cast<T*>(call.in.v), b, first_head, w.heads,
             split * kSplit, (split + 1) * kSplit, part_of);
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
      if (w.row_sum[part(split)] == 0.0f) continue;  // no key; a NaN passes
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
