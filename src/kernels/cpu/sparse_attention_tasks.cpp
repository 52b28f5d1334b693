// Sparse attention: tiles of keys in order, of which each row reads those in its list.
#include "kernels/cpu/sparse_attention_tasks.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse_attention_tasks.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::sparse::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = strata::cpu::attention::HWY_NAMESPACE;
using simd::F32;
using simd::kLanes;
using simd::Vector;

constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;

HWY_INLINE Vector at(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE void put(float* p, Vector v) {
  hn::StoreU(v, F32(), p);
}

#if HWY_TARGET != HWY_SCALAR
// Adds up the blocks of four lanes of kCount.
template <int64_t kCount, typename V>
HWY_INLINE void put_block(V v, float* to) {
  if constexpr (kCount > 4) {
    const hn::FixedTag<float, kCount / 2> half;
    put_block<kCount / 2>(hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  } else {
    hn::StoreU(v, hn::FixedTag<float, 4>(), to);
  }
}
#endif

// to[i] = the sum of the lanes of the i-th vector.
HWY_INLINE void put_four_sums(Vector a, Vector b, Vector c, Vector e, float* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(e);
#else
  const F32 d;
  const hn::Repartition<uint64_t, F32> d64;
  const auto first = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto second = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  put_block<kLanes>(hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, first, second)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, first, second))),
                    to);
#endif
}

// to[i] = x · rows[i] for i < kCount, 4 or 8: as many sums as hide the latency of a multiply-add, over `n` columns,
// whole vectors.
template <int kCount>
HWY_INLINE void dots_together(const float* HWY_RESTRICT x, const float* const* rows, int64_t n,
                              float* HWY_RESTRICT to) {
  Vector sum[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sum[i] = hn::Zero(F32());
  for (int64_t c = 0; c < n; c += kLanes) {
    const Vector v = at(x + c);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) sum[i] = hn::MulAdd(v, at(rows[i] + c), sum[i]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kCount; i += 4) put_four_sums(sum[i], sum[i + 1], sum[i + 2], sum[i + 3], to + i);
}

// to[i] = x · rows[i] for i < count; rows has 3 more entries, which are read, and `to` takes 3 more numbers.
HWY_INLINE void dots(const float* x, const float* const* rows, int64_t count, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) dots_together<8>(x, rows + i, n, to + i);
  for (; i < count; i += 4) dots_together<4>(x, rows + i, n, to + i);
}

// sums += Σ_i weights[i] · rows[i], of kVectors vectors of columns.
template <int kVectors>
HWY_INLINE void add_columns(float* HWY_RESTRICT sums, const float* HWY_RESTRICT weights,
                            const float* const* rows, int64_t first, int64_t count) {
  Vector sum[kVectors];
#pragma GCC unroll 12
  for (int v = 0; v < kVectors; ++v) sum[v] = at(sums + v * kLanes);
  for (int64_t i = 0; i < count; ++i) {
    const Vector weight = hn::Set(F32(), weights[i]);
    const float* const row = rows[i] + first;
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::MulAdd(weight, at(row + v * kLanes), sum[v]);
  }
#pragma GCC unroll 12
  for (int v = 0; v < kVectors; ++v) put(sums + v * kLanes, sum[v]);
}
// Of n columns, whole vectors.
HWY_INLINE void add_rows(float* sums, const float* weights, const float* const* rows, int64_t count,
                         int64_t n) {
  int64_t c = 0;
  for (; c + 12 * kLanes <= n; c += 12 * kLanes) add_columns<12>(sums + c, weights, rows, c, count);
  for (; c + 8 * kLanes <= n; c += 8 * kLanes) add_columns<8>(sums + c, weights, rows, c, count);
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) add_columns<4>(sums + c, weights, rows, c, count);
  for (; c < n; c += kLanes) add_columns<1>(sums + c, weights, rows, c, count);
}

// A tile of keys, [first, first + keys).
struct Tile {
  int64_t first = 0, keys = 0;
};
// The first tile that has a key of the lists' rest; no keys: there is none.
HWY_INLINE Tile next_tile(const Call& call, int64_t first_row, int64_t rows, const int32_t* from,
                          const int32_t* lengths) {
  int64_t key = call.shape.kv_len;
  for (int64_t r = 0; r < rows; ++r)
    if (from[r] < lengths[r]) key = std::min<int64_t>(key, call.chosen(first_row + r)[from[r]]);
  if (key == call.shape.kv_len) return {};
  const int64_t first = key / kTileKeys * kTileKeys;
  return {first, std::min(kTileKeys, call.shape.kv_len - first)};
}

// The entries of a list that are in the tile, as rows of its packed keys.
struct Visit {
  int32_t begin = 0, end = 0;  // of the list
  const float* rows[kGradTileKeys + 3];

  int32_t count() const { return end - begin; }
  HWY_INLINE Visit(const int32_t* chosen, int32_t from, int32_t length, const Tile& tile, const float* keys,
                   int64_t stride)
      : begin(from), end(from) {
    const auto last = static_cast<int32_t>(tile.first + tile.keys);
    for (; end < length && chosen[end] < last; ++end)
      rows[end - begin] = keys + (chosen[end] - tile.first) * stride;
    for (int i = 0; i < 3; ++i) rows[end - begin + i] = keys;
  }
};

// p of a row from its scores in units of log 2, relative to the greatest; returns their sum. The numbers after `n` up
// to a multiple of 16 become 0.
struct Softened {
  float most, sum;
};
HWY_INLINE Softened soften(float* scores, int64_t n) {
  const F32 d;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::fill(scores + n, scores + align_up(n, 16), kNone);
  Vector most = hn::Set(d, kNone);
  for (int64_t j = 0; j < n; j += kLanes) most = hn::Max(most, at(scores + j));
  most = hn::MaxOfLanes(d, most);
  Vector sum = hn::Zero(d);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vector p = simd::exp2(hn::Sub(at(scores + j), most));
    sum = hn::Add(sum, p);
    put(scores + j, p);
  }
  return {hn::GetLane(most), hn::GetLane(hn::SumOfLanes(d, sum))};
}

}  // namespace

HWY_ATTR void forward(const Call& call, int64_t task, void* memory) {
  const SparseAttentionShape& s = call.shape;
  Carver carver(memory);
  const ForwardScratch w(carver, s, call.rows);
  const int64_t tasks = ceil_div(s.q_len, call.rows), sequence = task / tasks;
  const int64_t in_sequence = task % tasks * call.rows, rows = std::min(call.rows, s.q_len - in_sequence);
  const int64_t first = sequence * s.q_len + in_sequence, group = call.group();
  const int64_t keys = padded_columns<float>(s.head_dim), values = padded_columns<float>(s.value_dim);
  const int64_t key_stride = tile_stride<float>(s.head_dim), value_stride = tile_stride<float>(s.value_dim);
  for (int64_t r = 0; r < rows; ++r) w.lengths[r] = length_of(call.chosen(first + r), s.count);
  if (call.mass != nullptr) std::fill_n(call.mass + first * s.count, rows * s.count, 0.0f);

  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  if (call.task_greatest != nullptr) std::fill_n(call.task_greatest + task * s.heads, s.heads, kLeast);
  for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
    const int64_t head = kv_head * group;
    for (int64_t r = 0; r < rows; ++r)
      simd::pack_rows(w.q + r * group * key_stride, key_stride, call.in.q, s.dtype,
                      call.q_offset(first + r, head), s.head_dim, group, group, s.head_dim, s.scale * kLog2e);
    std::fill_n(w.at, rows, 0);
    for (Tile tile = next_tile(call, first, rows, w.at, w.lengths); tile.keys > 0;
         tile = next_tile(call, first, rows, w.at, w.lengths)) {
      simd::pack_rows(w.keys, key_stride, call.in.k, s.dtype,
                      call.kv_base(sequence) + tile.first * s.k_stride + kv_head * s.head_dim, s.k_stride,
                      tile.keys, tile.keys, s.head_dim, 1.0f);
      for (int64_t r = 0; r < rows; ++r) {
        const Visit visit(call.chosen(first + r), w.at[r], w.lengths[r], tile, w.keys, key_stride);
        if (visit.count() == 0) continue;
        for (int64_t g = r * group; g < (r + 1) * group; ++g)
          dots(w.q + g * key_stride, visit.rows, visit.count(), keys,
               w.scores + g * w.score_stride + visit.begin);
        w.at[r] = visit.end;
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < group; ++g) {
        const int64_t index = r * group + g;
        float* const scores = w.scores + index * w.score_stride;
        const Softened soft = soften(scores, w.lengths[r]);
        const bool none = w.lengths[r] == 0;
        if (call.task_greatest != nullptr) {
          float& most = call.task_greatest[task * s.heads + head + g];
          most = std::max(most, soft.most * kLn2);
        }
        w.factors[index] = none ? 0.0f : 1.0f / soft.sum;
        if (call.lse != nullptr)
          call.lse[(sequence * s.heads + head + g) * s.q_len + in_sequence + r] =
              none ? -std::numeric_limits<float>::infinity() : soft.most * kLn2 + std::log(soft.sum);
        if (call.mass != nullptr)
          simd::add_scaled(call.mass + (first + r) * s.count, scores, w.factors[index], w.lengths[r]);
      }
    }
    std::fill_n(w.sums, rows * group * value_stride, 0.0f);
    std::fill_n(w.at, rows, 0);
    for (Tile tile = next_tile(call, first, rows, w.at, w.lengths); tile.keys > 0;
         tile = next_tile(call, first, rows, w.at, w.lengths)) {
      simd::pack_rows(w.keys, value_stride, call.in.v, s.dtype,
                      call.kv_base(sequence) + tile.first * s.v_stride + kv_head * s.value_dim, s.v_stride,
                      tile.keys, tile.keys, s.value_dim, 1.0f);
      for (int64_t r = 0; r < rows; ++r) {
        const Visit visit(call.chosen(first + r), w.at[r], w.lengths[r], tile, w.keys, value_stride);
        if (visit.count() == 0) continue;
        for (int64_t g = r * group; g < (r + 1) * group; ++g)
          add_rows(w.sums + g * value_stride, w.scores + g * w.score_stride + visit.begin, visit.rows,
                   visit.count(), values);
        w.at[r] = visit.end;
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < group; ++g)
        simd::unpack_row(call.out, s.dtype, call.out_offset(first + r, head + g),
                         w.sums + (r * group + g) * value_stride, s.value_dim, w.factors[r * group + g]);
    }
  }
}

namespace {

// Σ_c a[c] b[c].
template <typename T>
HWY_INLINE float dot_of(const T* a, const T* b, int64_t n) {
  Vector sum = hn::Zero(F32());
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) sum = hn::MulAdd(simd::load(a + c), simd::load(b + c), sum);
  float total = hn::GetLane(hn::SumOfLanes(F32(), sum));
  for (; c < n; ++c) total += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  return total;
}

// A row of a block, of one head.
struct BlockRow {
  int32_t row;
  const float *query, *dout;
  float lse, delta;
  float* dq;
};
// Adds to the gradient of the row's query, and its keys to the pairs.
HWY_INLINE void add_row_pairs(const BlockRow& row, const Visit& visit, const int32_t* chosen,
                              const Tile& tile, const float* const* value_rows, const BackwardScratch& w,
                              int64_t keys, int64_t values) {
  const F32 d;
  HWY_ALIGN float p[kGradTileKeys + 16], ds[kGradTileKeys + 16];
  const int64_t n = visit.count();
  dots(row.query, visit.rows, n, keys, p);
  dots(row.dout, value_rows, n, values, ds);
  std::fill(p + n, p + align_up(n, 16), 0.0f);
  std::fill(ds + n, ds + align_up(n, 16), 0.0f);
  const Vector lse = hn::Set(d, row.lse), delta = hn::Set(d, row.delta);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vector weight = simd::exp2(hn::Sub(at(p + j), lse));
    put(p + j, weight);
    put(ds + j, hn::Mul(weight, hn::Sub(at(ds + j), delta)));
  }
  add_rows(row.dq, ds, visit.rows, n, keys);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t key = chosen[visit.begin + j] - tile.first, pair = key * kBlockRows + w.pairs[key]++;
    w.pair_rows[pair] = row.row;
    w.p[pair] = p[j];
    w.ds[pair] = ds[j];
  }
}

// Adds the pairs to the gradients of the tile's keys and values.
HWY_INLINE void add_key_pairs(const Tile& tile, const BackwardScratch& w, int64_t keys, int64_t values,
                              int64_t key_stride, int64_t value_stride) {
  const float *queries[kBlockRows], *douts[kBlockRows];
  for (int64_t key = 0; key < tile.keys; ++key) {
    const int32_t n = w.pairs[key];
    if (n == 0) continue;
    const int64_t first = key * kBlockRows;
    for (int32_t i = 0; i < n; ++i) {
      queries[i] = w.queries + w.pair_rows[first + i] * key_stride;
      douts[i] = w.dout + w.pair_rows[first + i] * value_stride;
    }
    add_rows(w.dkeys + key * key_stride, w.ds + first, queries, n, keys);
    add_rows(w.dvalues + key * value_stride, w.p + first, douts, n, values);
  }
}

}  // namespace

HWY_ATTR void backward(const Call& call, int64_t task, void* memory) {
  const SparseAttentionShape& s = call.shape;
  Carver carver(memory);
  const BackwardScratch w(carver, s);
  const int64_t sequence = task / s.kv_heads, kv_head = task % s.kv_heads, group = call.group();
  const int64_t keys = padded_columns<float>(s.head_dim), values = padded_columns<float>(s.value_dim);
  const int64_t key_stride = tile_stride<float>(s.head_dim), value_stride = tile_stride<float>(s.value_dim);
  const int64_t first = sequence * s.q_len;
  for (int64_t r = 0; r < s.q_len; ++r) {
    w.lengths[r] = length_of(call.chosen(first + r), s.count);
    w.at[r] = 0;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = kv_head * group + g, offset = call.out_offset(first + r, head);
      w.lse[g * s.q_len + r] = call.given_lse[(sequence * s.heads + head) * s.q_len + r] * kLog2e;
      simd::with_type(s.dtype, [&](auto* type) HWY_ATTR {
        using T = std::remove_reference_t<decltype(*type)>;
        w.delta[g * s.q_len + r] = dot_of(static_cast<T*>(call.dout) + offset,
                                          static_cast<T*>(call.given_out) + offset, s.value_dim);
      });
    }
  }
  std::fill_n(w.dq, group * s.q_len * keys, 0.0f);
  for (Tile tile{0, 0}; tile.first < s.kv_len; tile.first += kGradTileKeys) {
    tile.keys = std::min(kGradTileKeys, s.kv_len - tile.first);
    const int64_t k_offset = call.kv_base(sequence) + tile.first * s.k_stride + kv_head * s.head_dim,
                  v_offset = call.kv_base(sequence) + tile.first * s.v_stride + kv_head * s.value_dim;
    simd::pack_rows(w.keys, key_stride, call.in.k, s.dtype, k_offset, s.k_stride, tile.keys, tile.keys,
                    s.head_dim, 1.0f);
    simd::pack_rows(w.values, value_stride, call.in.v, s.dtype, v_offset, s.v_stride, tile.keys, tile.keys,
                    s.value_dim, 1.0f);
    std::fill_n(w.dkeys, kGradTileKeys * key_stride, 0.0f);
    std::fill_n(w.dvalues, kGradTileKeys * value_stride, 0.0f);
    const auto last = static_cast<int32_t>(tile.first + tile.keys);
    for (int64_t begin = 0; begin < s.q_len; begin += kBlockRows) {
      const int64_t end = std::min(begin + kBlockRows, s.q_len);
      bool any = false;
      for (int64_t g = 0; g < group && (g == 0 || any); ++g) {
        const int64_t head = kv_head * group + g;
        std::fill_n(w.pairs, kGradTileKeys, 0);
        for (int64_t r = begin; r < end; ++r) {
          const int32_t* const chosen = call.chosen(first + r);
          if (w.at[r] == w.lengths[r] || chosen[w.at[r]] >= last) continue;
          any = true;
          const Visit visit(chosen, w.at[r], w.lengths[r], tile, w.keys, key_stride),
              of_values(chosen, w.at[r], w.lengths[r], tile, w.values, value_stride);
          const int64_t index = g * s.q_len + r;
          float *const query = w.queries + (r - begin) * key_stride, *const dout =
                                                                         w.dout + (r - begin) * value_stride;
          simd::pack_rows(query, key_stride, call.in.q, s.dtype, call.q_offset(first + r, head), s.q_stride,
                          1, 1, s.head_dim, s.scale * kLog2e);
          simd::pack_rows(dout, value_stride, call.dout, s.dtype, call.out_offset(first + r, head),
                          s.value_dim, 1, 1, s.value_dim, 1.0f);
          add_row_pairs({.row = static_cast<int32_t>(r - begin),
                         .query = query,
                         .dout = dout,
                         .lse = w.lse[index],
                         .delta = w.delta[index],
                         .dq = w.dq + index * keys},
                        visit, chosen, tile, of_values.rows, w, keys, values);
          if (g + 1 == group) w.at[r] = visit.end;
        }
        if (any) add_key_pairs(tile, w, keys, values, key_stride, value_stride);
      }
    }
    for (int64_t j = 0; j < tile.keys; ++j) {
      // Queries were scaled in units of log 2.
      simd::unpack_row(call.to.dk, s.dtype, k_offset + j * s.k_stride, w.dkeys + j * key_stride, s.head_dim,
                       kLn2);
      simd::unpack_row(call.to.dv, s.dtype, v_offset + j * s.v_stride, w.dvalues + j * value_stride,
                       s.value_dim, 1.0f);
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    for (int64_t r = 0; r < s.q_len; ++r)
      simd::unpack_row(call.to.dq, s.dtype, call.q_offset(first + r, kv_head * group + g),
                       w.dq + (g * s.q_len + r) * keys, s.head_dim, s.scale);
  }
}

}  // namespace strata::cpu::sparse::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::sparse {
HWY_EXPORT(forward);
HWY_EXPORT(backward);

void forward_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(forward)(call, task, memory);
}
void backward_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(backward)(call, task, memory);
}

}  // namespace strata::cpu::sparse
#endif
