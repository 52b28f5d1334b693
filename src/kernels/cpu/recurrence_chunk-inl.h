// What forward and backward make of a chunk: its keys, decays, pairs of rows, and the solve. Compiled once for
// every SIMD target: include it after <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_RECURRENCE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_RECURRENCE_CHUNK_INL_H_
#undef STRATA_KERNELS_CPU_RECURRENCE_CHUNK_INL_H_
#else
#define STRATA_KERNELS_CPU_RECURRENCE_CHUNK_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/recurrence_products-inl.h"
#include "kernels/cpu/recurrence_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::recurrence::HWY_NAMESPACE {

using attention::HWY_NAMESPACE::pack_rows;
using attention::HWY_NAMESPACE::unpack_row;

inline constexpr float kLog2e = 1.44269504088896341f;

HWY_INLINE Vector exp_of(Vector x) {
  return attention::HWY_NAMESPACE::exp2(hn::Mul(x, constant(kLog2e)));
}

// Rows [first, first + rows) of all, padded to `padded`.
struct ChunkRows {
  int64_t first, rows, padded;
  ChunkRows(int64_t first_row, int64_t count)
      : first(first_row), rows(count), padded(align_up(count, kBlock)) {}
};

// A chunk of one key head, and of one of its value heads at a time.
class Chunk {
 public:
  Chunk(const Call& call, const Sizes& sizes, const ChunkScratch& memory)
      : call_(call), s_(call.shape), n_(sizes), w_(memory) {}

  const ChunkScratch& at() const { return w_; }
  const ChunkRows& rows() const { return rows_; }
  Matrix q() const { return {w_.q, n_.key_stride}; }
  Matrix k() const { return {w_.k, n_.key_stride}; }
  // q and k as they meet the state before the chunk, and k as it goes into the one after it, up to
  // factors of rows: row_decay() and rest_decay().
  Matrix q_of_state() const { return s_.by_channel ? Matrix{w_.q_begin, n_.key_stride} : q(); }
  Matrix k_of_state() const { return s_.by_channel ? Matrix{w_.k_begin, n_.key_stride} : k(); }
  Matrix k_to_state() const { return s_.by_channel ? Matrix{w_.k_end, n_.key_stride} : k(); }
  const float* row_decay() const { return s_.by_channel ? nullptr : w_.row_decay; }
  const float* rest_decay() const { return s_.by_channel ? nullptr : w_.rest_decay; }
  Matrix pairs(const float* of) const { return {of, n_.pair_stride}; }
  Matrix values(const float* of) const { return {of, n_.value_stride}; }

  // Matmuls whose results go to outputs and gradients and into no state: with operands in bf16 if the plan has
  // it so.
  HWY_INLINE void outward_rows(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, Target to,
                               Part part = Part::kAll) const {
    if (!s_.pairs) return multiply_rows(rows, columns, depth, a, b, to, part);
    call_.pairs->multiply(false, rows, columns, depth, a, b, to, part, w_.rounded);
  }
  HWY_INLINE void outward_across(int64_t rows, int64_t columns, int64_t depth, Matrix a, Matrix b, Target to,
                                 Part part = Part::kAll) const {
    if (!s_.pairs) return multiply_across(rows, columns, depth, a, b, to, part);
    call_.pairs->multiply(true, rows, columns, depth, a, b, to, part, w_.rounded);
  }

  HWY_INLINE void load_keys(const ChunkRows& rows, int64_t key_head, bool queries) {
    rows_ = rows;
    load_normed(w_.k, w_.k_rsqrt, s_.k_first + key_head * s_.key_dim, 1);
    if (queries) load_normed(w_.q, w_.q_rsqrt, s_.q_first + key_head * s_.key_dim, s_.scale);
    if (s_.by_channel || !(queries || s_.delta)) return;
    transpose(w_.keys_across, n_.pair_stride, w_.k, n_.key_stride, rows.padded, n_.keys);
    const Matrix across{w_.keys_across, n_.pair_stride};
    if (s_.delta)
      multiply_rows(rows.padded, rows.padded, n_.keys, k(), across, {w_.keys_keys, n_.pair_stride},
                    Part::kLowerResult);
    if (queries)
      outward_rows(rows.padded, rows.padded, n_.keys, q(), across, {w_.queries_keys, n_.pair_stride},
                   Part::kLowerResult);
  }

  HWY_INLINE void load_gates(int64_t head) {
    float documents = 0;
    for (int64_t i = 0; i < rows_.padded; ++i) {
      if (begins(i)) ++documents;
      w_.documents[i] = documents;
      w_.beta[i] = i < rows_.rows ? call_.in.beta[(rows_.first + i) * s_.value_heads + head] : 0.0f;
    }
    if (s_.by_channel) {
      load_channel_gates(head);
    } else {
      load_head_gates(head);
    }
  }
  // Whether a document begins with the row.
  bool begins(int64_t i) const {
    return i < rows_.rows && call_.in.positions != nullptr && call_.in.positions[rows_.first + i] == 0;
  }

  // P, and A of delta.
  HWY_INLINE void make_pairs(bool queries) {
    if (s_.by_channel) {
      channel_pairs(queries);
    } else if (queries || s_.delta) {
      head_pairs(queries);
    }
  }

  HWY_INLINE void load_values(float* to, const void* from, int64_t offset, int64_t stride) const {
    pack_rows(to, n_.value_stride, from, s_.dtype, rows_.first * stride + offset, stride, rows_.rows,
              rows_.padded, s_.value_dim, 1.0f);
  }
  HWY_INLINE void load_v(int64_t head) const {
    load_values(w_.rest, call_.in.mixed, s_.v_first + head * s_.value_dim, s_.width);
  }

  // u and, of delta, F, from v in `rest` and the state before the chunk.
  HWY_INLINE void solve(const float* state, float* f) {
    const int64_t stride = n_.value_stride;
    if (!s_.delta) {
      for (int64_t i = 0; i < rows_.padded; ++i)
        scale_row(w_.u + i * stride, w_.rest + i * stride, w_.beta[i], n_.values);
      return;
    }
    multiply_rows(rows_.padded, n_.values, n_.keys, k_of_state(), values(state),
                  adding_to(w_.rest, stride, -1, row_decay()));
    for (int64_t b = 0; b < rows_.padded; b += kBlock) {
      float* const rest = w_.rest + b * stride;
      if (b > 0)
        multiply_rows(kBlock, n_.values, b, pairs(w_.a + b * n_.pair_stride), values(w_.u),
                      adding_to(rest, stride, -1));
      invert<false>(b);
      multiply_rows(kBlock, n_.values, kBlock, {w_.inverse + b * kBlock, kBlock}, values(rest),
                    {f + b * stride, stride}, Part::kLower);
      for (int64_t i = b; i < b + kBlock; ++i)
        scale_row(w_.u + i * stride, f + i * stride, w_.beta[i], n_.values);
    }
  }

  // The inverse of a block on the diagonal of I + A diag(β), or of I + diag(β) A.
  template <bool kScaledRows>
  HWY_INLINE void invert(int64_t first) {
    constexpr int64_t kVectors = kBlock / kLanes;
    Vector row[kBlock][kVectors];
    HWY_ALIGN static constexpr float kUnit[2 * kBlock] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    const float* const a = w_.a + first * n_.pair_stride + first;
    const float* const beta = w_.beta + first;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kBlock; ++i) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) row[i][v] = load(kUnit + kBlock - 1 - i + v * kLanes);
#pragma GCC unroll 16
      for (int64_t j = 0; j < i; ++j) {
        const Vector factor = constant(a[i * n_.pair_stride + j] * beta[kScaledRows ? i : j]);
#pragma GCC unroll 4
        for (int64_t v = 0; v < kVectors; ++v) row[i][v] = hn::NegMulAdd(factor, row[j][v], row[i][v]);
      }
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) store(w_.inverse + (first + i) * kBlock + v * kLanes, row[i][v]);
    }
  }

  // The state after the chunk from that before it, perhaps in place. Destroys u of a decay a head.
  HWY_INLINE void update_state(float* to, const float* state) {
    if (rest_decay() != nullptr) {
      for (int64_t i = 0; i < rows_.padded; ++i) {
        float* const row = w_.u + i * n_.value_stride;
        scale_row(row, row, w_.rest_decay[i], n_.values);
      }
    }
    multiply_across(n_.keys, n_.values, rows_.padded, k_to_state(), values(w_.u),
                    {to, n_.value_stride, 1, nullptr, state, w_.state_decay});
  }

 private:
  HWY_INLINE void load_normed(float* to, float* rsqrt, int64_t column, float scale) const {
    pack_rows(to, n_.key_stride, call_.in.mixed, s_.dtype, rows_.first * s_.width + column, s_.width,
              rows_.rows, rows_.padded, s_.key_dim, s_.l2_norm ? 1.0f : scale);
    for (int64_t i = 0; i < rows_.rows; ++i) {
      float* const row = to + i * n_.key_stride;
      rsqrt[i] = s_.l2_norm ? 1 / std::sqrt(dot_rows(row, row, n_.keys) + 1e-6f) : 1.0f;
      if (s_.l2_norm) scale_row(row, row, rsqrt[i] * scale, n_.keys);
    }
  }

  HWY_INLINE void load_head_gates(int64_t head) {
    double sum = 0;  // of the row's document, so that no other one moves its rounding
    for (int64_t i = 0; i < rows_.padded; ++i) {
      if (begins(i)) sum = 0;
      if (i < rows_.rows)
        sum +=
            static_cast<double>(call_.in.g[(rows_.first + i) * s_.value_heads + head]) * 1.44269504088896341;
      w_.high[i] = static_cast<float>(sum);
      w_.low[i] = static_cast<float>(sum - static_cast<double>(w_.high[i]));
    }
    const int64_t last = rows_.padded - 1;
    const Vector high = constant(w_.high[last]), low = constant(w_.low[last]),
                 document = constant(w_.documents[last]);
    for (int64_t i = 0; i < rows_.padded; i += kLanes) {
      const Vector of = load(w_.documents + i), own = load(w_.high + i), own_low = load(w_.low + i);
      store(w_.row_decay + i, decay_of(own, own_low, hn::Eq(of, zero())));
      store(w_.rest_decay + i, decay_of(hn::Sub(high, own), hn::Sub(low, own_low), hn::Eq(of, document)));
    }
    const Vector all = decay_of(high, low, hn::Eq(document, zero()));
    for (int64_t c = 0; c < n_.keys; c += kLanes) store(w_.state_decay + c, all);
  }
  // 2^(high + low) where `kept`, else 0; the exponent of others may be above 0.
  template <typename Mask>
  static HWY_INLINE Vector decay_of(Vector high, Vector low, Mask kept) {
    const Vector exponent = hn::IfThenElseZero(kept, hn::Add(high, low));
    return hn::IfThenElseZero(kept, attention::HWY_NAMESPACE::exp2(exponent));
  }

  HWY_INLINE void head_pairs(bool queries) {
    HWY_ALIGN static constexpr float kPlaces[kBlock] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t i = 0; i < rows_.padded; ++i) {
      const int64_t row = i * n_.pair_stride, diagonal = i / kBlock * kBlock;
      const Vector high = constant(w_.high[i]), low = constant(w_.low[i]), of = constant(w_.documents[i]);
      const auto pairs = [&](int64_t j, Vector own) HWY_ATTR {
        store(w_.decay + row + j, own);
        if (queries) store(w_.p + row + j, hn::Mul(own, load(w_.queries_keys + row + j)));
        return own;
      };
      const auto decays = [&](int64_t j, auto kept) HWY_ATTR {
        return pairs(j, decay_of(hn::Sub(high, load(w_.high + j)), hn::Sub(low, load(w_.low + j)), kept));
      };
      for (int64_t j = 0; j < diagonal; j += kLanes) {
        const Vector own = decays(j, hn::Eq(of, load(w_.documents + j)));
        if (s_.delta) store(w_.a + row + j, hn::Mul(own, load(w_.keys_keys + row + j)));
      }
      const Vector place = constant(static_cast<float>(i - diagonal));
      for (int64_t j = 0; j < kBlock; j += kLanes) {
        const Vector at = load(kPlaces + j);
        const auto same = hn::Eq(of, load(w_.documents + diagonal + j));
        const Vector own = decays(diagonal + j, hn::And(same, hn::Le(at, place)));
        if (s_.delta)
          store(w_.a + row + diagonal + j,
                hn::IfThenElseZero(hn::Lt(at, place), hn::Mul(own, load(w_.keys_keys + row + diagonal + j))));
      }
    }
  }

  HWY_INLINE void load_channel_gates(int64_t head) {
    const int64_t stride = n_.key_stride, keys = n_.keys;
    pack_rows(w_.gates, stride, call_.in.g, DType::kF32, (rows_.first * s_.value_heads + head) * s_.key_dim,
              s_.value_heads * s_.key_dim, rows_.rows, rows_.padded, s_.key_dim, 1.0f);
    for (int64_t c = 0; c < keys; c += kLanes) {
      Vector run = constant(1);
      for (int64_t b = 0; b < rows_.padded; b += kBlock) {
        Vector sum = zero();
        bool begun = false;
        for (int64_t i = b; i < b + kBlock; ++i) {
          const int64_t at = i * stride + c;
          begun = begun || begins(i);
          sum = hn::Add(sum, load(w_.gates + at));
          const Vector own = begun ? zero() : exp_of(sum);
          store(w_.before + at, own);
          store(w_.from_begin + at, hn::Mul(own, run));
        }
        const Vector block = begun ? zero() : exp_of(sum);
        store(w_.block_decay + b / kBlock * keys + c, block);
        run = hn::Mul(run, block);
        sum = zero();
        begun = false;
        for (int64_t i = b + kBlock - 1; i >= b; --i) {
          const int64_t at = i * stride + c;
          store(w_.to_end + at, begun ? zero() : exp_of(sum));
          const Vector g = load(w_.gates + at);
          sum = hn::Add(sum, g);
          begun = begun || begins(i);
          store(w_.gates + at, begins(i) ? zero() : exp_of(g));
        }
      }
      store(w_.state_decay + c, run);
      run = constant(1);
      for (int64_t b = rows_.padded - kBlock; b >= 0; b -= kBlock) {
        for (int64_t i = b; i < b + kBlock; ++i) {
          const int64_t at = i * stride + c;
          const Vector k = load(w_.k + at), from_begin = load(w_.from_begin + at);
          store(w_.k_end + at, hn::Mul(k, hn::Mul(run, load(w_.to_end + at))));
          store(w_.k_begin + at, hn::Mul(k, from_begin));
          store(w_.q_begin + at, hn::Mul(load(w_.q + at), from_begin));
        }
        run = hn::Mul(run, load(w_.block_decay + b / kBlock * keys + c));
      }
    }
  }

  // A block's rows meet keys of blocks before it at its begin: both are decayed to there.
  HWY_INLINE void channel_pairs(bool queries) {
    for (int64_t b = 0; b < rows_.padded; b += kBlock) {
      diagonal_pairs(b, queries);
      const Matrix across{w_.keys_across, n_.pair_stride}, own{w_.block_rows, n_.key_stride};
      if (b > 0) {
        decayed_rows(w_.block_rows, w_.k, w_.before, b);
        multiply_rows(kBlock, b, n_.keys, own, across, {w_.a + b * n_.pair_stride, n_.pair_stride});
      }
      if (b > 0 && queries) {
        decayed_rows(w_.block_rows, w_.q, w_.before, b);
        outward_rows(kBlock, b, n_.keys, own, across, {w_.p + b * n_.pair_stride, n_.pair_stride});
      }
      if (b + kBlock == rows_.padded) break;
      for (int64_t c = 0; c < n_.keys && b > 0; ++c) {
        float* const row = w_.keys_across + c * n_.pair_stride;
        scale_row(row, row, w_.block_decay[b / kBlock * n_.keys + c], b);
      }
      decayed_rows(w_.block_rows, w_.k, w_.to_end, b);
      transpose(w_.keys_across + b, n_.pair_stride, w_.block_rows, n_.key_stride, kBlock, n_.keys);
    }
  }

 public:
  // to[i] = from[b + i] ⊙ decay[b + i], for the rows of a block.
  HWY_INLINE void decayed_rows(float* to, const float* from, const float* decay, int64_t b) const {
    for (int64_t i = 0; i < kBlock; ++i) {
      const int64_t at = (b + i) * n_.key_stride;
      multiply_row(to + i * n_.key_stride, from + at, decay + at, n_.keys);
    }
  }

 private:
  // Pair by pair: a key that passes on from row to row is decayed at each.
  HWY_INLINE void diagonal_pairs(int64_t b, bool queries) {
    const int64_t stride = n_.key_stride, keys = n_.keys;
    float* const passing = w_.block_rows;
    for (int64_t j = b; j < b + kBlock; ++j) {
      for (int64_t i = b; i < j; ++i) w_.a[i * n_.pair_stride + j] = w_.p[i * n_.pair_stride + j] = 0;
      w_.a[j * n_.pair_stride + j] = 0;
      if (queries) w_.p[j * n_.pair_stride + j] = dot_rows(w_.q + j * stride, w_.k + j * stride, keys);
      const float* from = w_.k + j * stride;
      for (int64_t i = j + 1; i < b + kBlock; ++i) {
        const float *const k = w_.k + i * stride, *const q = w_.q + i * stride,
                           *const gate = w_.gates + i * stride;
        Vector with_k = zero(), with_q = zero();
        for (int64_t c = 0; c < keys; c += kLanes) {
          const Vector own = hn::Mul(load(from + c), load(gate + c));
          store(passing + c, own);
          with_k = hn::MulAdd(own, load(k + c), with_k);
          if (queries) with_q = hn::MulAdd(own, load(q + c), with_q);
        }
        from = passing;
        w_.a[i * n_.pair_stride + j] = sum_of_lanes(with_k);
        if (queries) w_.p[i * n_.pair_stride + j] = sum_of_lanes(with_q);
      }
    }
  }

  const Call& call_;
  const RecurrenceShape& s_;
  const Sizes& n_;
  const ChunkScratch& w_;
  ChunkRows rows_{0, 0};
};

// A state of the caller [K, V] to a task's, padded, and back.
HWY_INLINE void load_state(const RecurrenceShape& s, const Sizes& n, float* to, const float* from) {
  if (from == nullptr) return clear(to, n.state());
  pack_rows(to, n.value_stride, from, DType::kF32, 0, s.value_dim, s.key_dim, n.keys, s.value_dim, 1.0f);
}
HWY_INLINE void store_state(const RecurrenceShape& s, const Sizes& n, float* to, const float* from) {
  for (int64_t c = 0; c < s.key_dim; ++c)
    std::copy_n(from + c * n.value_stride, s.value_dim, to + c * s.value_dim);
}

}  // namespace strata::cpu::recurrence::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
