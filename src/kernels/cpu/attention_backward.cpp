// Backward pass: weights are computed again from lse, tile by tile, and give five products:
// S = Q Kᵀ, dP = dO Vᵀ, dV += Pᵀ dO, dK += dSᵀ Q, dQ += dS K with dS = P ∘ (dP - delta).
#include <cmath>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/attention_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

// The keys that one task works on, packed.
struct KeyBlock {
  int64_t b, kv_head;
  int64_t first, keys;
};

// A block of at most kRows query rows of one head.
struct RowBlock {
  int64_t head;
  int64_t first, rows;
  int64_t lo[kRows], hi[kRows];
};

HWY_INLINE void pack_keys(const Call& call, const KeyBlock& block, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  const int64_t k_offset = call.k_offset(block.b, block.first, block.kv_head);
  const int64_t v_offset = call.v_offset(block.b, block.first, block.kv_head);
  pack_transposed(w.keys_t, call.in.k, s.dtype, k_offset, s.k_stride, block.keys, s.head_dim);
  pack_transposed(w.values_t, call.in.v, s.dtype, v_offset, s.v_stride, block.keys, s.value_dim);
  // The scale of dQ = scale · dS K goes with K.
  pack_rows(w.keys, tile_stride(s.head_dim), call.in.k, s.dtype, k_offset, s.k_stride, block.keys, block.keys,
            s.head_dim, s.scale);
}

HWY_INLINE void pack_queries(const Call& call, int64_t b, const RowBlock& rows, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  pack_rows(w.q, tile_stride(s.head_dim), call.in.q, s.dtype, call.q_offset(b, rows.first, rows.head),
            s.q_stride, rows.rows, kRows, s.head_dim, s.scale * kLog2e);
  pack_rows(w.dout, tile_stride(s.value_dim), call.dout, s.dtype, call.out_offset(b, rows.first, rows.head),
            s.out_stride, rows.rows, kRows, s.value_dim, 1.0f);
}

// Columns [begin, end) of one row: p = 2^(score - lse), ds = p (dp - delta); 0 for keys outside [first,
// last).
HWY_INLINE void weigh_row(float* HWY_RESTRICT p, float* HWY_RESTRICT ds, int64_t begin, int64_t end,
                          int64_t first, int64_t last, float lse, float delta) {
  const F32 d;
  if (first < last) {
    const Vector l = hn::Set(d, lse), e = hn::Set(d, delta);
    for (int64_t j = first / kPanel * kPanel; j < last; j += kPanel) {
      for (int64_t i = j; i < j + kPanel; i += kLanes) {
        const Vector weight = exp2(hn::Sub(hn::LoadU(d, p + i), l));
        hn::StoreU(weight, d, p + i);
        hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, ds + i), e)), d, ds + i);
      }
    }
  } else {
    first = last = end;
  }
  for (int64_t j = begin; j < first; ++j) p[j] = ds[j] = 0.0f;
  for (int64_t j = last; j < end; ++j) p[j] = ds[j] = 0.0f;
}

// The same with scores capped: ds takes the slope 1 - tanh² of the cap.
HWY_INLINE void weigh_capped_row(float* HWY_RESTRICT p, float* HWY_RESTRICT ds, int64_t begin, int64_t end,
                                 int64_t first, int64_t last, float lse, float delta, float cap) {
  const F32 d;
  const Vector c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap), one = hn::Set(d, 1.0f);
  for (int64_t j = first / kLanes * kLanes; j < last; j += kLanes) {
    const Vector bend = tanh(hn::Mul(hn::LoadU(d, p + j), inverse));
    hn::StoreU(hn::Mul(c, bend), d, p + j);
    // weigh_row multiplies by (ds - delta): make it (ds - delta) (1 - tanh²).
    const Vector slope = hn::NegMulAdd(bend, bend, one);
    const Vector e = hn::Set(d, delta);
    hn::StoreU(hn::MulAdd(slope, hn::Sub(hn::LoadU(d, ds + j), e), e), d, ds + j);
  }
  weigh_row(p, ds, begin, end, first, last, lse, delta);
}

// p and ds of a block of rows against a block of keys. Where a tile is left out, both are zero.
HWY_INLINE void weigh(const Call& call, const KeyBlock& block, const RowBlock& rows, const TileRanges& ranges,
                      const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  score_tiles(w.p, w.q, tile_stride(s.head_dim), w.keys_t, block.keys, s.head_dim, ranges);
  score_tiles(w.ds, w.dout, tile_stride(s.value_dim), w.values_t, block.keys, s.value_dim, ranges);
  const int64_t index = call.row_index(block.b, rows.first, rows.head);
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t begin = ranges.panel_begin(r / kTile), end = ranges.panel_end(r / kTile);
    float* p = w.p + r * kScoreStride;
    float* ds = w.ds + r * kScoreStride;
    const bool inside = r < rows.rows;
    const int64_t first = std::clamp<int64_t>(rows.lo[r] - block.first, 0, block.keys);
    const int64_t last = std::clamp<int64_t>(rows.hi[r] - block.first, 0, block.keys);
    const float lse = inside ? call.row_lse[index + r] : 0.0f, delta = inside ? call.delta[index + r] : 0.0f;
    if (s.softcap > 0) {
      weigh_capped_row(p, ds, begin, end, first, last, lse, delta, s.softcap * kLog2e);
    } else {
      if (call.in.bias != nullptr && first < last) {
        const int64_t at = call.bias_index(block.b, rows.first + r, block.first + first);
        add_scaled(p + first, call.in.bias + rows.head * s.bias_width + at, kLog2e, last - first);
      }
      weigh_row(p, ds, begin, end, first, last, lse, delta);
    }
    std::fill(p, p + begin, 0.0f);
    std::fill(ds, ds + begin, 0.0f);
    std::fill(p + end, p + kKeys, 0.0f);
    std::fill(ds + end, ds + kKeys, 0.0f);
  }
}

// sums[key, :] += Σ_r weights[r, key] · rows[r, :] over the rows that see a tile of keys.
HWY_INLINE void add_rows(float* sums, int64_t stride, const float* weights, const float* rows,
                         int64_t columns, const KeyBlock& block, const RowBlock& row_block) {
  int64_t begin = 0, end = 0;
  for (int64_t key = 0; key < block.keys; key += kTile) {
    // Both ends rise with the key, as lo and hi rise with the row.
    while (begin < row_block.rows && row_block.hi[begin] <= block.first + key) ++begin;
    while (end < row_block.rows && row_block.lo[end] < block.first + key + kTile) ++end;
    if (begin >= end) continue;
    const float* a = weights + begin * kScoreStride + key;
    for (int64_t c = 0; c < columns; c += kPanel) {
      const float* b = rows + begin * stride + c;
      float* to = sums + key * stride + c;
      if (c + kLanes < columns) {
        tile_product<2, true, Start::kSum>(end - begin, a, kScoreStride, b, stride, to, stride, nullptr);
      } else {
        tile_product<1, true, Start::kSum>(end - begin, a, kScoreStride, b, stride, to, stride, nullptr);
      }
    }
  }
}

HWY_INLINE void add_key_gradients(const Call& call, const KeyBlock& block, const RowBlock& rows,
                                  const BackwardScratch& w) {
  const int64_t head_dim = call.shape.head_dim, value_dim = call.shape.value_dim;
  add_rows(w.dv, tile_stride(value_dim), w.p, w.dout, align_up(value_dim, kLanes), block, rows);
  add_rows(w.dk, tile_stride(head_dim), w.ds, w.q, align_up(head_dim, kLanes), block, rows);
}

HWY_INLINE void add_query_gradients(const Call& call, const TileRanges& ranges, const BackwardScratch& w) {
  const int64_t stride = tile_stride(call.shape.head_dim);
  add_values<Start::kSum>(w.dq, stride, w.ds, w.keys, stride, align_up(call.shape.head_dim, kLanes), ranges,
                          nullptr);
}

// The gradient of a score is that of its bias.
HWY_INLINE void add_bias_gradients(const Call& call, const KeyBlock& block, const RowBlock& rows,
                                   const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  float* sums = call.bias_sums + (block.b * s.heads + rows.head) * s.bias_width;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t first = std::clamp<int64_t>(rows.lo[r] - block.first, 0, block.keys);
    const int64_t last = std::clamp<int64_t>(rows.hi[r] - block.first, 0, block.keys);
    if (first >= last) continue;
    add_scaled(sums + call.bias_index(block.b, rows.first + r, block.first + first),
               w.ds + r * kScoreStride + first, 1.0f, last - first);
  }
}

HWY_INLINE void clear_key_gradients(const Call& call, const BackwardScratch& w) {
  std::fill_n(w.dk, kKeys * tile_stride(call.shape.head_dim), 0.0f);
  std::fill_n(w.dv, kKeys * tile_stride(call.shape.value_dim), 0.0f);
}

HWY_INLINE void store_key_gradients(const Call& call, const KeyBlock& block, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  for (int64_t j = 0; j < block.keys; ++j) {
    const int64_t key = block.first + j;
    // The packed queries carry scale · log2 e.
    unpack_row(call.to.dk, s.dtype, call.k_offset(block.b, key, block.kv_head),
               w.dk + j * tile_stride(s.head_dim), s.head_dim, kLn2);
    unpack_row(call.to.dv, s.dtype, call.v_offset(block.b, key, block.kv_head),
               w.dv + j * tile_stride(s.value_dim), s.value_dim, 1.0f);
  }
}

HWY_INLINE void set_rows(const Call& call, int64_t b, int64_t head, int64_t first, RowBlock& rows) {
  rows.head = head;
  rows.first = first;
  rows.rows = std::min(kRows, call.shape.q_len - first);
  visible_keys(call, b, first, rows.rows, rows.lo, rows.hi);
}

// fp32 sums of dq of one (sequence, head): dq itself, or scratch where dq is bf16.
struct QuerySums {
  float* rows;
  int64_t stride;
};
HWY_INLINE QuerySums query_sums(const Call& call, int64_t b, int64_t kv_head, int64_t g,
                                const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  if (s.dtype == DType::kF32) {
    return {static_cast<float*>(call.to.dq) + call.q_offset(b, 0, kv_head * call.group + g), s.q_stride};
  }
  const int64_t columns = padded_columns(s.head_dim);
  return {w.dq_sums + g * s.q_len * columns, columns};
}

}  // namespace

HWY_ATTR void rows_ready(const Call& call, const void* out, const float* lse, int64_t task, float* row_lse,
                         float* delta) {
  const AttentionShape& s = call.shape;
  const int64_t b = task / s.heads, head = task % s.heads;
  with_type(s.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_reference_t<decltype(*type)>;
    for (int64_t i = 0; i < s.q_len; ++i) {
      const T* HWY_RESTRICT x = static_cast<T*>(out) + call.out_offset(b, i, head);
      const T* HWY_RESTRICT dx = static_cast<T*>(call.dout) + call.out_offset(b, i, head);
      Vector sum = hn::Zero(F32());
      int64_t c = 0;
      for (; c + kLanes <= s.value_dim; c += kLanes) sum = hn::MulAdd(load(x + c), load(dx + c), sum);
      float total = hn::GetLane(hn::SumOfLanes(F32(), sum));
      for (; c < s.value_dim; ++c) total += static_cast<float>(x[c]) * static_cast<float>(dx[c]);
      delta[call.row_index(b, i, head)] = total;
      row_lse[call.row_index(b, i, head)] = lse[call.row_index(b, i, head)] * kLog2e;
    }
  });
}

// Task: (sequence, key–value head).
HWY_ATTR void head_gradients(const Call& call, int64_t task, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  KeyBlock block{task / s.kv_heads, task % s.kv_heads, 0, 0};
  const int64_t stride = tile_stride(s.head_dim);
  const int64_t b = block.b;
  for (int64_t g = 0; g < call.group; ++g) {
    const QuerySums sums = query_sums(call, b, block.kv_head, g, w);
    for (int64_t i = 0; i < s.q_len; ++i) std::fill_n(sums.rows + i * sums.stride, s.head_dim, 0.0f);
  }
  if (call.bias_sums != nullptr) {
    std::fill_n(call.bias_sums + (b * s.heads + block.kv_head * call.group) * s.bias_width,
                call.group * s.bias_width, 0.0f);
  }
  RowBlock rows;
  for (block.first = 0; block.first < s.kv_len; block.first += kKeys) {
    block.keys = std::min(kKeys, s.kv_len - block.first);
    pack_keys(call, block, w);
    clear_key_gradients(call, w);
    for (int64_t g = 0; g < call.group; ++g) {
      const QuerySums sums = query_sums(call, b, block.kv_head, g, w);
      for (int64_t first = 0; first < s.q_len; first += kRows) {
        set_rows(call, b, block.kv_head * call.group + g, first, rows);
        const TileRanges ranges(rows.lo, rows.hi, block.first, block.keys);
        if (!ranges.any) continue;
        pack_queries(call, b, rows, w);
        weigh(call, block, rows, ranges, w);
        if (call.bias_sums != nullptr) add_bias_gradients(call, block, rows, w);
        add_key_gradients(call, block, rows, w);
        float* dq = sums.rows + first * sums.stride;
        pack_rows(w.dq, stride, dq, DType::kF32, 0, sums.stride, rows.rows, kRows, s.head_dim, 1.0f);
        add_query_gradients(call, ranges, w);
        for (int64_t r = 0; r < rows.rows; ++r) {
          unpack_row(dq, DType::kF32, r * sums.stride, w.dq + r * stride, s.head_dim, 1.0f);
        }
      }
    }
    store_key_gradients(call, block, w);
  }
  if (s.dtype == DType::kF32) return;
  for (int64_t g = 0; g < call.group; ++g) {
    const QuerySums sums = query_sums(call, b, block.kv_head, g, w);
    for (int64_t i = 0; i < s.q_len; ++i) {
      unpack_row(call.to.dq, s.dtype, call.q_offset(b, i, block.kv_head * call.group + g),
                 sums.rows + i * sums.stride, s.head_dim, 1.0f);
    }
  }
}

// Task: (block of keys, sequence, key–value head).
HWY_ATTR void key_gradients(const Call& call, int64_t task, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  KeyBlock block{task / s.kv_heads % s.batch, task % s.kv_heads, task / (s.batch * s.kv_heads) * kKeys, 0};
  block.keys = std::min(kKeys, s.kv_len - block.first);
  pack_keys(call, block, w);
  clear_key_gradients(call, w);
  RowBlock rows;
  for (int64_t g = 0; g < call.group; ++g) {
    for (int64_t first = 0; first < s.q_len; first += kRows) {
      set_rows(call, block.b, block.kv_head * call.group + g, first, rows);
      const TileRanges ranges(rows.lo, rows.hi, block.first, block.keys);
      if (!ranges.any) continue;
      pack_queries(call, block.b, rows, w);
      weigh(call, block, rows, ranges, w);
      add_key_gradients(call, block, rows, w);
    }
  }
  store_key_gradients(call, block, w);
}

// Task: (block of rows, the last first; sequence; head).
HWY_ATTR void query_gradients(const Call& call, int64_t task, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  const int64_t stride = tile_stride(s.head_dim);
  const int64_t b = task / s.heads % s.batch, head = task % s.heads;
  RowBlock rows;
  set_rows(call, b, head, (ceil_div(s.q_len, kRows) - 1 - task / (s.batch * s.heads)) * kRows, rows);
  pack_queries(call, b, rows, w);
  std::fill_n(w.dq, kRows * stride, 0.0f);
  const int64_t end = rows.hi[rows.rows - 1];
  KeyBlock block{b, head / call.group, 0, 0};
  for (block.first = rows.lo[0] / kKeys * kKeys; block.first < end; block.first += kKeys) {
    block.keys = std::min(kKeys, s.kv_len - block.first);
    const TileRanges ranges(rows.lo, rows.hi, block.first, block.keys);
    if (!ranges.any) continue;
    pack_keys(call, block, w);
    weigh(call, block, rows, ranges, w);
    add_query_gradients(call, ranges, w);
  }
  for (int64_t r = 0; r < rows.rows; ++r) {
    unpack_row(call.to.dq, s.dtype, call.q_offset(b, rows.first + r, head), w.dq + r * stride, s.head_dim,
               1.0f);
  }
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::attention {
HWY_EXPORT(rows_ready);
HWY_EXPORT(head_gradients);
HWY_EXPORT(key_gradients);
HWY_EXPORT(query_gradients);

void backward_rows(const Call& call, const void* out, const float* lse, int64_t task, float* row_lse,
                   float* delta) {
  HWY_DYNAMIC_DISPATCH(rows_ready)(call, out, lse, task, row_lse, delta);
}
void backward_head(const Call& call, int64_t task, const BackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(head_gradients)(call, task, scratch);
}
void backward_keys(const Call& call, int64_t task, const BackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(key_gradients)(call, task, scratch);
}
void backward_queries(const Call& call, int64_t task, const BackwardScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(query_gradients)(call, task, scratch);
}
}  // namespace strata::cpu::attention
#endif
