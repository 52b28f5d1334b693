// Backward pass: recomputes weights from lse, tile by tile, and computes five matmuls:
// S = Q Kᵀ, dP = dO Vᵀ, dV += Pᵀ dO, dK += dSᵀ Q, dQ += dS K with dS = P ∘ (dP - delta).
#include <cmath>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::attention::HWY_NAMESPACE {
namespace {

// The packed keys and values of one task.
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

template <typename Math>
using Scratch = BackwardScratch<typename Math::Packed>;

template <typename Math>
HWY_INLINE void pack_keys(const Math& math, const Call& call, const KeyBlock& block, const Scratch<Math>& w) {
  const AttentionShape& s = call.shape;
  const Rows keys{call.in.k, call.k_offset(block.b, block.first, block.kv_head), s.k_stride, block.keys,
                  s.head_dim};
  math.pack_across(w.keys_t, keys);
  math.pack_across(w.values_t, {call.in.v, call.v_offset(block.b, block.first, block.kv_head), s.v_stride,
                                block.keys, s.value_dim});
  math.pack_keys(w.keys, keys);
}

template <typename Math>
HWY_INLINE void pack_queries(const Math& math, const Call& call, int64_t b, const RowBlock& rows,
                             const Scratch<Math>& w, bool for_keys) {
  const AttentionShape& s = call.shape;
  const Rows queries{call.in.q, call.q_offset(b, rows.first, rows.head), s.q_stride, rows.rows, s.head_dim};
  const Rows dout{call.dout, call.out_offset(b, rows.first, rows.head), s.out_stride, rows.rows, s.value_dim};
  math.pack_queries(w.q, queries);
  math.pack_dout(w.dout, dout);
  if (!for_keys) return;
  math.pack_rows_down(w.q_down, queries);
  math.pack_rows_down(w.dout_down, dout);
}

// Computes columns [begin, end) of one row: p = 2^(score - lse), ds = p (dp - delta); 0 for keys outside
// [first, last).
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

// Like weigh_row(), with capped scores: ds includes the slope 1 - tanh² of the cap.
HWY_INLINE void weigh_capped_row(float* HWY_RESTRICT p, float* HWY_RESTRICT ds, int64_t begin, int64_t end,
                                 int64_t first, int64_t last, float lse, float delta, float cap) {
  const F32 d;
  const Vector c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap), one = hn::Set(d, 1.0f);
  for (int64_t j = first / kLanes * kLanes; j < last; j += kLanes) {
    const Vector bend = tanh(hn::Mul(hn::LoadU(d, p + j), inverse));
    hn::StoreU(hn::Mul(c, bend), d, p + j);
    // weigh_row multiplies by (ds - delta): turn that into (ds - delta) (1 - tanh²).
    const Vector slope = hn::NegMulAdd(bend, bend, one);
    const Vector e = hn::Set(d, delta);
    hn::StoreU(hn::MulAdd(slope, hn::Sub(hn::LoadU(d, ds + j), e), e), d, ds + j);
  }
  weigh_row(p, ds, begin, end, first, last, lse, delta);
}

// Computes p and ds of a block of rows and a block of keys. Both are zero in skipped tiles.
template <typename Math>
HWY_INLINE void weigh(const Math& math, const Call& call, const KeyBlock& block, const RowBlock& rows,
                      const typename Math::KeyRanges& ranges, const Scratch<Math>& w) {
  const AttentionShape& s = call.shape;
  math.query_scores(w.p, w.q, w.keys_t, block.keys, s.head_dim, ranges);
  math.dout_scores(w.ds, w.dout, w.values_t, block.keys, s.value_dim, ranges);
  const int64_t index = call.row_index(block.b, rows.first, rows.head);
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t begin = ranges.panel_begin(r / Math::kTileRows),
                  end = ranges.panel_end(r / Math::kTileRows);
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

template <typename Math>
HWY_INLINE void add_key_gradients(const Math& math, const Call& call, const KeyBlock& block,
                                  const RowBlock& rows, const Scratch<Math>& w) {
  const typename Math::TileRows ranges(rows.lo, rows.hi, rows.rows, block.first, block.keys);
  math.add_rows_down(w.dv, w.p, w.dout_down, call.shape.value_dim, ranges);
  math.add_rows_down(w.dk, w.ds, w.q_down, call.shape.head_dim, ranges);
}

template <typename Math>
HWY_INLINE void add_query_gradients(const Math& math, const Call& call, float* dq, int64_t stride,
                                    const typename Math::KeyRanges& ranges, const Scratch<Math>& w) {
  math.template add_down<Start::kSum>(dq, stride, w.ds, w.keys, call.shape.head_dim, ranges, nullptr);
}

// Adds the gradients of scores to those of their biases.
HWY_INLINE void add_bias_gradients(const Call& call, const KeyBlock& block, const RowBlock& rows,
                                   const float* ds) {
  const AttentionShape& s = call.shape;
  float* sums = call.bias_sums + (block.b * s.heads + rows.head) * s.bias_width;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t first = std::clamp<int64_t>(rows.lo[r] - block.first, 0, block.keys);
    const int64_t last = std::clamp<int64_t>(rows.hi[r] - block.first, 0, block.keys);
    if (first >= last) continue;
    add_scaled(sums + call.bias_index(block.b, rows.first + r, block.first + first),
               ds + r * kScoreStride + first, 1.0f, last - first);
  }
}

template <typename Math>
HWY_INLINE void clear_key_gradients(const Call& call, const Scratch<Math>& w) {
  std::fill_n(w.dk, kKeys * tile_stride<float>(call.shape.head_dim), 0.0f);
  std::fill_n(w.dv, kKeys * tile_stride<float>(call.shape.value_dim), 0.0f);
}

template <typename Math>
HWY_INLINE void store_key_gradients(const Math& math, const Call& call, const KeyBlock& block,
                                    const Scratch<Math>& w) {
  const AttentionShape& s = call.shape;
  for (int64_t j = 0; j < block.keys; ++j) {
    const int64_t key = block.first + j;
    unpack_row(call.to.dk, s.dtype, call.k_offset(block.b, key, block.kv_head),
               w.dk + j * tile_stride<float>(s.head_dim), s.head_dim, math.dk_factor());
    unpack_row(call.to.dv, s.dtype, call.v_offset(block.b, key, block.kv_head),
               w.dv + j * tile_stride<float>(s.value_dim), s.value_dim, 1.0f);
  }
}

HWY_INLINE void set_rows(const Call& call, int64_t b, int64_t head, int64_t first, RowBlock& rows) {
  rows.head = head;
  rows.first = first;
  rows.rows = std::min(kRows, call.shape.q_len - first);
  visible_keys(call, b, first, rows.rows, rows.lo, rows.hi);
}

// fp32 sums of dq of one (sequence, head): dq itself, or scratch if dq is narrower.
struct QuerySums {
  float* rows;
  int64_t stride;
};
HWY_INLINE QuerySums query_sums(const Call& call, int64_t b, int64_t kv_head, int64_t g, float* dq_sums) {
  const AttentionShape& s = call.shape;
  if (s.dtype == DType::kF32) {
    return {static_cast<float*>(call.to.dq) + call.q_offset(b, 0, kv_head * call.group + g), s.q_stride};
  }
  const int64_t columns = padded_columns<float>(s.head_dim);
  return {dq_sums + g * align_up(s.q_len, kRows) * columns, columns};
}

// Task: (sequence, key–value head).
template <typename Math>
HWY_INLINE void head_gradients(const Math& math, const Call& call, int64_t task, void* memory) {
  const AttentionShape& s = call.shape;
  Carver carver(memory);
  const Scratch<Math> w(carver, s);
  KeyBlock block{task / s.kv_heads, task % s.kv_heads, 0, 0};
  const int64_t stride = tile_stride<float>(s.head_dim);
  const int64_t b = block.b;
  for (int64_t g = 0; g < call.group; ++g) {
    const QuerySums sums = query_sums(call, b, block.kv_head, g, w.dq_sums);
    if (s.dtype == DType::kF32) {
      for (int64_t i = 0; i < s.q_len; ++i) std::fill_n(sums.rows + i * sums.stride, s.head_dim, 0.0f);
    } else {
      std::fill_n(sums.rows, align_up(s.q_len, kRows) * sums.stride, 0.0f);
    }
  }
  if (call.bias_sums != nullptr) {
    std::fill_n(call.bias_sums + (b * s.heads + block.kv_head * call.group) * s.bias_width,
                call.group * s.bias_width, 0.0f);
  }
  RowBlock rows;
  for (block.first = 0; block.first < s.kv_len; block.first += kKeys) {
    block.keys = std::min(kKeys, s.kv_len - block.first);
    pack_keys(math, call, block, w);
    clear_key_gradients<Math>(call, w);
    for (int64_t g = 0; g < call.group; ++g) {
      const QuerySums sums = query_sums(call, b, block.kv_head, g, w.dq_sums);
      for (int64_t first = 0; first < s.q_len; first += kRows) {
        set_rows(call, b, block.kv_head * call.group + g, first, rows);
        const typename Math::KeyRanges ranges(rows.lo, rows.hi, block.first, block.keys);
        if (!ranges.any) continue;
        pack_queries(math, call, b, rows, w, true);
        weigh(math, call, block, rows, ranges, w);
        if (call.bias_sums != nullptr) add_bias_gradients(call, block, rows, w.ds);
        add_key_gradients(math, call, block, rows, w);
        float* dq = sums.rows + first * sums.stride;
        if (s.dtype != DType::kF32) {  // scratch, which holds whole blocks
          add_query_gradients(math, call, dq, sums.stride, ranges, w);
          continue;
        }
        pack_rows(w.dq, stride, dq, DType::kF32, 0, sums.stride, rows.rows, kRows, s.head_dim, 1.0f);
        add_query_gradients(math, call, w.dq, stride, ranges, w);
        for (int64_t r = 0; r < rows.rows; ++r) {
          unpack_row(dq, DType::kF32, r * sums.stride, w.dq + r * stride, s.head_dim, 1.0f);
        }
      }
    }
    store_key_gradients(math, call, block, w);
  }
  if (s.dtype == DType::kF32) return;
  for (int64_t g = 0; g < call.group; ++g) {
    const QuerySums sums = query_sums(call, b, block.kv_head, g, w.dq_sums);
    for (int64_t i = 0; i < s.q_len; ++i) {
      unpack_row(call.to.dq, s.dtype, call.q_offset(b, i, block.kv_head * call.group + g),
                 sums.rows + i * sums.stride, s.head_dim, math.dq_factor());
    }
  }
}

// Task: (block of keys, sequence, key–value head).
template <typename Math>
HWY_INLINE void key_gradients(const Math& math, const Call& call, int64_t task, void* memory) {
  const AttentionShape& s = call.shape;
  Carver carver(memory);
  const Scratch<Math> w(carver, s);
  KeyBlock block{task / s.kv_heads % s.batch, task % s.kv_heads, task / (s.batch * s.kv_heads) * kKeys, 0};
  block.keys = std::min(kKeys, s.kv_len - block.first);
  pack_keys(math, call, block, w);
  clear_key_gradients<Math>(call, w);
  RowBlock rows;
  for (int64_t g = 0; g < call.group; ++g) {
    for (int64_t first = 0; first < s.q_len; first += kRows) {
      set_rows(call, block.b, block.kv_head * call.group + g, first, rows);
      const typename Math::KeyRanges ranges(rows.lo, rows.hi, block.first, block.keys);
      if (!ranges.any) continue;
      pack_queries(math, call, block.b, rows, w, true);
      weigh(math, call, block, rows, ranges, w);
      add_key_gradients(math, call, block, rows, w);
    }
  }
  store_key_gradients(math, call, block, w);
}

// Task: (block of rows, the last first; sequence; head).
template <typename Math>
HWY_INLINE void query_gradients(const Math& math, const Call& call, int64_t task, void* memory) {
  const AttentionShape& s = call.shape;
  Carver carver(memory);
  const Scratch<Math> w(carver, s);
  const int64_t stride = tile_stride<float>(s.head_dim);
  const int64_t b = task / s.heads % s.batch, head = task % s.heads;
  RowBlock rows;
  set_rows(call, b, head, (ceil_div(s.q_len, kRows) - 1 - task / (s.batch * s.heads)) * kRows, rows);
  pack_queries(math, call, b, rows, w, false);
  std::fill_n(w.dq, kRows * stride, 0.0f);
  const int64_t end = rows.hi[rows.rows - 1];
  KeyBlock block{b, head / call.group, 0, 0};
  for (block.first = rows.lo[0] / kKeys * kKeys; block.first < end; block.first += kKeys) {
    block.keys = std::min(kKeys, s.kv_len - block.first);
    const typename Math::KeyRanges ranges(rows.lo, rows.hi, block.first, block.keys);
    if (!ranges.any) continue;
    pack_keys(math, call, block, w);
    weigh(math, call, block, rows, ranges, w);
    add_query_gradients(math, call, w.dq, stride, ranges, w);
  }
  for (int64_t r = 0; r < rows.rows; ++r) {
    unpack_row(call.to.dq, s.dtype, call.q_offset(b, rows.first + r, head), w.dq + r * stride, s.head_dim,
               math.dq_factor());
  }
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

HWY_ATTR void gradients_of_head(const Call& call, int64_t task, void* memory) {
  by_products(call, [&](const auto& math) HWY_ATTR { head_gradients(math, call, task, memory); });
}
HWY_ATTR void gradients_of_keys(const Call& call, int64_t task, void* memory) {
  by_products(call, [&](const auto& math) HWY_ATTR { key_gradients(math, call, task, memory); });
}
HWY_ATTR void gradients_of_queries(const Call& call, int64_t task, void* memory) {
  by_products(call, [&](const auto& math) HWY_ATTR { query_gradients(math, call, task, memory); });
}

}  // namespace strata::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::attention {
HWY_EXPORT(rows_ready);
HWY_EXPORT(gradients_of_head);
HWY_EXPORT(gradients_of_keys);
HWY_EXPORT(gradients_of_queries);

void backward_rows(const Call& call, const void* out, const float* lse, int64_t task, float* row_lse,
                   float* delta) {
  HWY_DYNAMIC_DISPATCH(rows_ready)(call, out, lse, task, row_lse, delta);
}
void backward_head(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(gradients_of_head)(call, task, memory);
}
void backward_keys(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(gradients_of_keys)(call, task, memory);
}
void backward_queries(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(gradients_of_queries)(call, task, memory);
}
}  // namespace strata::cpu::attention
#endif
