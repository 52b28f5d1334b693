// Recurrence, backward: of a range's heads, states and F of all chunks are made again, then gradients chunk by
// chunk from the last to the first. With dP_ij = dO_i · u_j and dA_ij = -z_i · u_j,
//
//   dU = Pᵀ dO + (decayed k) dS,   y = dU - Aᵀ z,   z = β y = dV,   dβ_i = y_i · F_i,
//   dS ← e^G dS + (decayed q)ᵀ dO - (decayed k)ᵀ z,
//
// and q, k and G get their gradients from pairs and states: each term with e^{G_i - G_j} adds its value to G_i and
// subtracts it from G_j.
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence_backward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/recurrence_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::recurrence::HWY_NAMESPACE {

class Backward {
 public:
  Backward(const Call& call, const Sizes& sizes, const BackwardScratch& memory)
      : call_(call), s_(call.shape), n_(sizes), w_(memory), chunk_(call, sizes, memory.chunk) {}

  Chunk& chunk() { return chunk_; }

  // dU into y and z, with P and A of the chunk, and dO.
  HWY_INLINE void solve(const float* dstate) {
    const ChunkRows& rows = chunk_.rows();
    const int64_t stride = n_.value_stride;
    float* const du = s_.delta ? w_.du : w_.y;
    const Target begin{du, stride, 1, chunk_.rest_decay()};
    if (s_.delta) {  // the solve hands it on to the state
      multiply_rows(rows.padded, n_.values, n_.keys, chunk_.k_to_state(), chunk_.values(dstate), begin);
    } else {
      chunk_.outward_rows(rows.padded, n_.values, n_.keys, chunk_.k_to_state(), chunk_.values(dstate), begin);
    }
    chunk_.outward_across(rows.padded, n_.values, rows.padded, chunk_.pairs(w_.chunk.p),
                          chunk_.values(w_.dout), adding_to(du, stride), Part::kLowerAcross);
    for (int64_t b = rows.padded - kBlock; b >= 0; b -= kBlock) {
      float *const own = du + b * stride, *const y = w_.y + b * stride;
      const int64_t next = b + kBlock;
      if (s_.delta) {
        if (next < rows.padded)
          multiply_across(kBlock, n_.values, rows.padded - next,
                          chunk_.pairs(w_.chunk.a + next * n_.pair_stride + b),
                          chunk_.values(w_.z + next * stride), adding_to(own, stride, -1));
        chunk_.invert<true>(b);
        multiply_across(kBlock, n_.values, kBlock, {w_.chunk.inverse + b * kBlock, kBlock},
                        chunk_.values(own), {y, stride}, Part::kLowerAcross);
      }
      for (int64_t i = b; i < next; ++i)
        scale_row(w_.z + i * stride, w_.y + i * stride, w_.chunk.beta[i], n_.values);
    }
  }

  // The gradient of the state before the chunk from that of the state after it.
  HWY_INLINE void update(float* dstate) {
    const ChunkRows& rows = chunk_.rows();
    multiply_across(n_.keys, n_.values, rows.padded, chunk_.q_of_state(), decayed(w_.dout),
                    {dstate, n_.value_stride, 1, nullptr, dstate, w_.chunk.state_decay});
    if (s_.delta)
      multiply_across(n_.keys, n_.values, rows.padded, chunk_.k_of_state(), decayed(w_.z),
                      adding_to(dstate, n_.value_stride, -1));
  }

  HWY_INLINE void load_dout(int64_t head) {
    chunk_.load_values(w_.dout, call_.dout, head * s_.value_dim, s_.value_heads * s_.value_dim);
  }

 private:
  // Rows times row_decay().
  HWY_INLINE Matrix decayed(const float* of) {
    if (chunk_.row_decay() == nullptr) return chunk_.values(of);
    for (int64_t i = 0; i < chunk_.rows().padded; ++i)
      scale_row(w_.scaled + i * n_.value_stride, of + i * n_.value_stride, chunk_.row_decay()[i], n_.values);
    return chunk_.values(w_.scaled);
  }

 protected:
  const Call& call_;
  const RecurrenceShape& s_;
  const Sizes& n_;
  const BackwardScratch& w_;
  Chunk chunk_;
};

// All gradients, not only that of the state.
class AllGradients : public Backward {
 public:
  using Backward::Backward;

  // Gradients of one head of the chunk: those of v, β and g, and its terms of dq, dk and their pairs.
  HWY_INLINE void head(int64_t head, bool first, const float* state, float* kept, float* dstate) {
    const ChunkRows& rows = chunk_.rows();
    chunk_.load_gates(head);
    chunk_.make_pairs(true);
    load_dout(head);
    float* const u = w_.chunk.u;
    if (!s_.delta) {
      chunk_.load_v(head);
      kept = w_.chunk.rest;
    }
    for (int64_t i = 0; i < rows.padded; ++i)
      scale_row(u + i * n_.value_stride, kept + i * n_.value_stride, w_.chunk.beta[i], n_.values);
    solve(dstate);
    put_values(head, kept);
    transpose(w_.u_across, n_.pair_stride, u, n_.value_stride, rows.padded, n_.values);
    transpose(w_.state_across, n_.key_stride, state, n_.value_stride, n_.keys, n_.values);
    transpose(w_.dstate_across, n_.key_stride, dstate, n_.value_stride, n_.keys, n_.values);
    const Matrix u_across{w_.u_across, n_.pair_stride};
    chunk_.outward_rows(rows.padded, rows.padded, n_.values, chunk_.values(w_.dout), u_across,
                        {w_.dp, n_.pair_stride}, Part::kLowerResult);
    if (s_.delta)
      chunk_.outward_rows(rows.padded, rows.padded, n_.values, chunk_.values(w_.z), u_across,
                          {w_.da, n_.pair_stride, -1}, Part::kLowerResult);
    if (s_.by_channel) {
      channel_keys(head, state, dstate);
    } else {
      head_keys(head, first, state, dstate);
    }
    update(dstate);
  }

  // The terms of dq and dk that come from pairs, of all heads of the task. Of decays a head.
  HWY_INLINE void finish_pairs() {
    const int64_t rows = chunk_.rows().padded, stride = n_.key_stride;
    if (s_.by_channel) return;
    const Matrix of_q = chunk_.pairs(w_.dpairs_q), of_k = chunk_.pairs(w_.dpairs_k);
    chunk_.outward_rows(rows, n_.keys, rows, of_q, chunk_.k(), adding_to(w_.dq, stride), Part::kLower);
    chunk_.outward_across(rows, n_.keys, rows, of_q, chunk_.q(), adding_to(w_.dk, stride),
                          Part::kLowerAcross);
    if (!s_.delta) return;
    chunk_.outward_rows(rows, n_.keys, rows, of_k, chunk_.k(), adding_to(w_.dk, stride), Part::kLower);
    chunk_.outward_across(rows, n_.keys, rows, of_k, chunk_.k(), adding_to(w_.dk, stride),
                          Part::kLowerAcross);
  }

  // Through the norm, to the columns of mixed, or to the share of this task.
  HWY_INLINE void put_keys(const TaskHeads& heads) {
    const ChunkRows& rows = chunk_.rows();
    const int64_t stride = n_.key_stride;
    for (int64_t i = 0; i < rows.rows; ++i) {
      float *const dq = w_.dq + i * stride, *const dk = w_.dk + i * stride;
      through_norm(dq, w_.chunk.q + i * stride, w_.chunk.q_rsqrt[i], s_.scale);
      through_norm(dk, w_.chunk.k + i * stride, w_.chunk.k_rsqrt[i], 1);
      const int64_t row = rows.first + i, key = heads.key_head * s_.key_dim;
      if (call_.shares != nullptr) {
        float* const to =
            call_.shares +
            ((heads.share * s_.ranges * s_.rows + row) * s_.key_heads + heads.key_head) * 2 * s_.key_dim;
        std::copy_n(dq, s_.key_dim, to);
        std::copy_n(dk, s_.key_dim, to + s_.key_dim);
        continue;
      }
      unpack_row(call_.to.dmixed, s_.dtype, row * s_.width + s_.q_first + key, dq, s_.key_dim, 1.0f);
      unpack_row(call_.to.dmixed, s_.dtype, row * s_.width + s_.k_first + key, dk, s_.key_dim, 1.0f);
    }
  }

 private:
  // y = x · rsqrt · scale: dy → dx.
  HWY_INLINE void through_norm(float* dy, const float* y, float rsqrt, float scale) const {
    if (!s_.l2_norm) {
      if (scale != 1) scale_row(dy, dy, scale, n_.keys);
      return;
    }
    const Vector along = constant(dot_rows(dy, y, n_.keys) / scale), factor = constant(rsqrt),
                 of_y = constant(scale);
    for (int64_t c = 0; c < n_.keys; c += kLanes)
      store(dy + c, hn::Mul(factor, hn::NegMulAdd(load(y + c), along, hn::Mul(of_y, load(dy + c)))));
  }

  // dv and dβ. Without delta `kept` is v.
  HWY_INLINE void put_values(int64_t head, const float* kept) {
    const ChunkRows& rows = chunk_.rows();
    const Vector skip = constant(call_.in.skip != nullptr ? call_.in.skip[head] : 0.0f);
    for (int64_t i = 0; i < rows.rows; ++i) {
      const int64_t row = rows.first + i, at = i * n_.value_stride;
      call_.to.dbeta[row * s_.value_heads + head] = dot_rows(w_.y + at, kept + at, n_.values);
      const float* dv = w_.z + at;
      if (call_.in.skip != nullptr) {
        for (int64_t c = 0; c < n_.values; c += kLanes)
          store(w_.scaled + c, hn::MulAdd(skip, load(w_.dout + at + c), load(dv + c)));
        dv = w_.scaled;
      }
      unpack_row(call_.to.dmixed, s_.dtype, row * s_.width + s_.v_first + head * s_.value_dim, dv,
                 s_.value_dim, 1.0f);
    }
  }

  // Of a decay a head.
  HWY_INLINE void head_keys(int64_t head, bool first, const float* state, const float* dstate) {
    const ChunkRows& rows = chunk_.rows();
    pair_gradients(first);
    for (int64_t i = 0; i < rows.padded; ++i) w_.dsums[i] -= static_cast<double>(w_.columns[i]);
    const Matrix across{w_.state_across, n_.key_stride}, dacross{w_.dstate_across, n_.key_stride};
    // Adds factor · (of · through) to `to`, or begins it; G takes its sums with the rows `with`.
    const auto add = [&](Matrix of, Matrix through, float factor, const float* decay, const float* with,
                         float* to, bool begins) HWY_ATTR {
      float* const own = begins ? to : w_.x;
      chunk_.outward_rows(rows.padded, n_.keys, n_.values, of, through, {own, n_.key_stride, factor, decay});
      double all = 0;
      for (int64_t i = 0; i < rows.padded; ++i) {
        const int64_t at = i * n_.key_stride;
        Vector sum = zero();
        for (int64_t c = at; c < at + n_.keys; c += kLanes) {
          const Vector x = load(own + c);
          sum = hn::MulAdd(load(with + c), x, sum);
          if (!begins) store(to + c, hn::Add(load(to + c), x));
        }
        const auto along = static_cast<double>(sum_of_lanes(sum));
        w_.dsums[i] += decay == w_.chunk.row_decay ? along : -along;
        all += along;
      }
      return all;
    };
    add(chunk_.values(w_.dout), across, 1, w_.chunk.row_decay, w_.chunk.q, w_.dq, first);
    double last = add(chunk_.values(w_.chunk.u), dacross, 1, w_.chunk.rest_decay, w_.chunk.k, w_.dk, first);
    if (s_.delta) add(chunk_.values(w_.z), across, -1, w_.chunk.row_decay, w_.chunk.k, w_.dk, false);
    float kept = 0;
    for (int64_t c = 0; c < n_.keys; ++c)
      kept += dot_rows(state + c * n_.value_stride, dstate + c * n_.value_stride, n_.values);
    last += static_cast<double>(kept * w_.chunk.state_decay[0]);
    w_.dsums[rows.rows - 1] += last;
    double sum = 0;
    for (int64_t i = rows.rows - 1; i >= 0; --i) {
      sum += w_.dsums[i];
      const bool begins = chunk_.begins(i);
      call_.to.dg[(rows.first + i) * s_.value_heads + head] = begins ? 0.0f : static_cast<float>(sum);
      if (begins) sum = 0;
    }
  }

  // Gradients of pairs with their decays, added up over heads; those of G: by rows in dsums, by columns.
  HWY_INLINE void pair_gradients(bool first) {
    HWY_ALIGN static constexpr float kPlaces[kBlock] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t rows = chunk_.rows().padded;
    clear(w_.columns, rows);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = i * n_.pair_stride, diagonal = i / kBlock * kBlock;
      Vector sum = zero();
      const auto pairs = [&](int64_t j, auto mask) HWY_ATTR {
        const Vector decay = load(w_.chunk.decay + row + j), dp = load(w_.dp + row + j);
        Vector own = hn::Mul(dp, load(w_.chunk.p + row + j));
        const auto put = [&](float* to, Vector d) HWY_ATTR {
          store(to + row + j, first ? hn::Mul(d, decay) : hn::MulAdd(d, decay, load(to + row + j)));
        };
        put(w_.dpairs_q, dp);
        if (s_.delta) {
          // A is 0 on the diagonal and above it, where its decay is not.
          const Vector da = mask(load(w_.da + row + j));
          own = hn::MulAdd(da, load(w_.chunk.a + row + j), own);
          put(w_.dpairs_k, da);
        }
        own = mask(own);
        sum = hn::Add(sum, own);
        store(w_.columns + j, hn::Add(load(w_.columns + j), own));
      };
      for (int64_t j = 0; j < diagonal; j += kLanes) pairs(j, [](Vector own) HWY_ATTR { return own; });
      const Vector place = constant(static_cast<float>(i - diagonal));
      for (int64_t j = 0; j < kBlock; j += kLanes) {
        const auto below = hn::Lt(load(kPlaces + j), place);
        pairs(diagonal + j, [&](Vector own) HWY_ATTR { return hn::IfThenElseZero(below, own); });
      }
      w_.dsums[i] = static_cast<double>(sum_of_lanes(sum));
    }
  }

  // Of a decay a channel. dk holds the gradient of keys as later rows of pairs, `column` that as earlier ones.
  HWY_INLINE void channel_keys(int64_t head, const float* state, const float* dstate) {
    const ChunkRows& rows = chunk_.rows();
    const ChunkScratch& c = w_.chunk;
    const int64_t stride = n_.key_stride, keys = n_.keys, padded = rows.padded;
    const Matrix across{w_.state_across, stride}, dacross{w_.dstate_across, stride};
    chunk_.outward_rows(padded, keys, n_.values, chunk_.values(w_.dout), across, {w_.dq, stride});
    chunk_.outward_rows(padded, keys, n_.values, chunk_.values(w_.z), across, {w_.dk, stride, -1});
    chunk_.outward_rows(padded, keys, n_.values, chunk_.values(c.u), dacross, {w_.column, stride});
    for (int64_t i = 0; i < padded; ++i) {
      const int64_t at = i * stride;
      multiply_row(w_.dq + at, w_.dq + at, c.from_begin + at, keys);
      multiply_row(w_.dk + at, w_.dk + at, c.from_begin + at, keys);
    }
    for (int64_t x = 0; x < keys; ++x)
      w_.dend[x] =
          c.state_decay[x] * dot_rows(state + x * n_.value_stride, dstate + x * n_.value_stride, n_.values);
    for (int64_t i = 0; i < padded; ++i) {
      const int64_t at = i * stride;
      for (int64_t x = 0; x < keys; x += kLanes)
        store(w_.dend + x, hn::MulAdd(load(c.k_end + at + x), load(w_.column + at + x), load(w_.dend + x)));
    }
    rows_of_blocks();
    columns_of_blocks();
    for (int64_t b = 0; b < padded; b += kBlock) diagonal_gradients(b);
    put_channel_gates(head);
  }

  // Keys before a block, decayed to its begin, for dq and dk of its rows.
  HWY_INLINE void rows_of_blocks() {
    const ChunkScratch& c = w_.chunk;
    const int64_t stride = n_.key_stride, keys = n_.keys;
    for (int64_t b = kBlock; b < chunk_.rows().padded; b += kBlock) {
      const int64_t previous = b - kBlock;
      for (int64_t i = 0; i < previous; ++i)
        multiply_row(w_.ends + i * stride, w_.ends + i * stride, c.block_decay + previous / kBlock * keys,
                     keys);
      chunk_.decayed_rows(w_.ends + previous * stride, c.k, c.to_end, previous);
      for (const auto& [pairs, to] : {std::pair{w_.dp, w_.dq}, std::pair{w_.da, w_.dk}}) {
        chunk_.outward_rows(kBlock, keys, b, chunk_.pairs(pairs + b * n_.pair_stride), {w_.ends, stride},
                            {w_.x, stride});
        for (int64_t i = 0; i < kBlock; ++i) {
          float* const row = to + (b + i) * stride;
          const float *const decay = c.before + (b + i) * stride, *const more = w_.x + i * stride;
          for (int64_t x = 0; x < keys; x += kLanes)
            store(row + x, hn::MulAdd(load(decay + x), load(more + x), load(row + x)));
        }
      }
    }
  }
  // Gradients of a block's keys from later rows, decayed to its end; they begin at the chunk's end.
  HWY_INLINE void columns_of_blocks() {
    const ChunkScratch& c = w_.chunk;
    const int64_t stride = n_.key_stride, keys = n_.keys;
    for (int64_t b = chunk_.rows().padded - kBlock; b >= 0; b -= kBlock) {
      chunk_.decayed_rows(w_.column + b * stride, w_.column, c.to_end, b);
      if (b == 0) break;
      for (int64_t j = 0; j < b; ++j)
        multiply_row(w_.column + j * stride, w_.column + j * stride, c.block_decay + b / kBlock * keys, keys);
      for (const auto& [pairs, of] : {std::pair{w_.dp, c.q}, std::pair{w_.da, c.k}}) {
        chunk_.decayed_rows(w_.x, of, c.before, b);
        chunk_.outward_across(b, keys, kBlock, chunk_.pairs(pairs + b * n_.pair_stride), {w_.x, stride},
                              adding_to(w_.column, stride));
      }
    }
  }
  // Pairs of a block's own rows, those of a row with itself left out.
  HWY_INLINE void diagonal_gradients(int64_t b) {
    const ChunkScratch& c = w_.chunk;
    const int64_t stride = n_.key_stride, keys = n_.keys;
    for (int64_t x = 0; x < keys; x += kLanes) {
      for (int64_t j = b; j + 1 < b + kBlock; ++j) {
        Vector passing = load(c.k + j * stride + x), coming = zero();
        for (int64_t i = j + 1; i < b + kBlock; ++i) {
          const int64_t at = i * stride + x, pair = i * n_.pair_stride + j;
          passing = hn::Mul(passing, load(c.gates + at));
          store(w_.dq + at, hn::MulAdd(constant(w_.dp[pair]), passing, load(w_.dq + at)));
          store(w_.dk + at, hn::MulAdd(constant(w_.da[pair]), passing, load(w_.dk + at)));
        }
        for (int64_t i = b + kBlock - 1; i > j; --i) {
          const int64_t at = i * stride + x, pair = i * n_.pair_stride + j;
          coming = hn::MulAdd(constant(w_.dp[pair]), load(c.q + at), coming);
          coming = hn::MulAdd(constant(w_.da[pair]), load(c.k + at), coming);
          coming = hn::Mul(coming, load(c.gates + at));
        }
        float* const to = w_.column + j * stride + x;
        store(to, hn::Add(load(to), coming));
      }
    }
  }
  // dg from what q and k got so far, which then get the pairs of rows with themselves.
  HWY_INLINE void put_channel_gates(int64_t head) {
    const ChunkScratch& c = w_.chunk;
    const ChunkRows& rows = chunk_.rows();
    const int64_t stride = n_.key_stride;
    for (int64_t i = rows.rows - 1; i >= 0; --i) {
      const bool begins = chunk_.begins(i);
      const Vector self = constant(w_.dp[i * n_.pair_stride + i]);
      for (int64_t x = 0; x < n_.keys; x += kLanes) {
        const int64_t at = i * stride + x;
        const Vector q = load(c.q + at), k = load(c.k + at), dq = load(w_.dq + at), row = load(w_.dk + at),
                     column = load(w_.column + at);
        const Vector own = hn::MulAdd(q, dq, hn::Mul(k, hn::Sub(row, column)));
        const Vector sum = hn::Add(load(w_.dend + x), own);
        store(w_.dend + x, begins ? zero() : sum);
        store(w_.x + x, begins ? zero() : sum);
        store(w_.dq + at, hn::MulAdd(self, k, dq));
        store(w_.dk + at, hn::MulAdd(self, q, hn::Add(row, column)));
      }
      std::copy_n(w_.x, s_.key_dim, call_.to.dg + ((rows.first + i) * s_.value_heads + head) * s_.key_dim);
    }
  }
};

// Chunks [0, chunks) of a range's rows.
struct RangeChunks {
  int64_t first, rows, size, count;
  RangeChunks(const RecurrenceShape& s, int64_t range, int64_t rows_used)
      : first(range * s.rows), rows(rows_used), size(s.chunk), count(ceil_div(rows_used, s.chunk)) {}
  ChunkRows at(int64_t i) const { return {first + i * size, std::min(size, rows - i * size)}; }
};

HWY_ATTR void backward(const Call& call, int64_t task, void* memory) {
  const RecurrenceShape& s = call.shape;
  const Sizes n(s);
  Carver carver(memory);
  const BackwardScratch w(carver, s, n, false);
  const TaskHeads heads(s, task);
  AllGradients gradients(call, n, w);
  Chunk& chunk = gradients.chunk();
  const RangeChunks chunks(s, heads.range, s.rows);
  const auto state_of = [&](int64_t h, int64_t c)
                            HWY_ATTR { return w.states + (h * (chunks.count + 1) + c) * n.state(); };
  const int64_t kept_size = n.rows * n.value_stride;
  const auto kept_of = [&](int64_t h, int64_t c) HWY_ATTR {
    return s.delta ? w.kept + (h * chunks.count + c) * kept_size : nullptr;
  };
  for (int64_t h = 0; h < heads.count; ++h) {
    const int64_t at = call.state_offset(heads.range, heads.first + h);
    load_state(s, n, state_of(h, 0), call.in.before != nullptr ? call.in.before + at : nullptr);
    load_state(s, n, w.dstates + h * n.state(), call.dlast != nullptr ? call.dlast + at : nullptr);
  }
  for (int64_t c = 0; c < chunks.count; ++c) {
    chunk.load_keys(chunks.at(c), heads.key_head, s.by_channel);
    for (int64_t h = 0; h < heads.count; ++h) {
      const int64_t head = heads.first + h;
      chunk.load_gates(head);
      chunk.make_pairs(false);
      chunk.load_v(head);
      chunk.solve(state_of(h, c), kept_of(h, c));
      chunk.update_state(state_of(h, c + 1), state_of(h, c));
    }
  }
  for (int64_t c = chunks.count - 1; c >= 0; --c) {
    chunk.load_keys(chunks.at(c), heads.key_head, true);
    for (int64_t h = 0; h < heads.count; ++h)
      gradients.head(heads.first + h, h == 0, state_of(h, c), kept_of(h, c), w.dstates + h * n.state());
    gradients.finish_pairs();
    gradients.put_keys(heads);
  }
  for (int64_t h = 0; h < heads.count && call.to.dbefore != nullptr; ++h)
    store_state(s, n, call.to.dbefore + call.state_offset(heads.range, heads.first + h),
                w.dstates + h * n.state());
}

// Rows from the begin of a document on do not read the state before the range.
HWY_ATTR void state_gradient(const Call& call, int64_t task, void* memory) {
  const RecurrenceShape& s = call.shape;
  const Sizes n(s);
  Carver carver(memory);
  const BackwardScratch w(carver, s, n, true);
  const TaskHeads heads(s, task);
  Backward gradients(call, n, w);
  Chunk& chunk = gradients.chunk();
  int64_t rows = s.rows;
  if (const int32_t* const positions = call.in.positions)
    rows = std::find(positions + heads.range * s.rows, positions + (heads.range + 1) * s.rows, 0) -
           (positions + heads.range * s.rows);
  const RangeChunks chunks(s, heads.range, rows);
  clear(w.dstates, heads.count * n.state());
  for (int64_t c = chunks.count - 1; c >= 0; --c) {
    chunk.load_keys(chunks.at(c), heads.key_head, true);
    for (int64_t h = 0; h < heads.count; ++h) {
      chunk.load_gates(heads.first + h);
      chunk.make_pairs(true);
      gradients.load_dout(heads.first + h);
      gradients.solve(w.dstates + h * n.state());
      gradients.update(w.dstates + h * n.state());
    }
  }
  for (int64_t h = 0; h < heads.count; ++h)
    store_state(s, n, call.dbefore + call.state_offset(heads.range, heads.first + h),
                w.dstates + h * n.state());
}

HWY_ATTR void add_shares(const Call& call, int64_t first, int64_t rows) {
  const RecurrenceShape& s = call.shape;
  const int64_t width = 2 * s.key_dim, share = s.ranges * s.rows * s.key_heads * width;
  for (int64_t at = first * s.key_heads; at < (first + rows) * s.key_heads; ++at) {
    const int64_t row = at / s.key_heads, key = at % s.key_heads * s.key_dim;
    float* const sum = call.shares + at * width;
    for (int64_t i = 1; i < tasks_of_group(s); ++i)
      attention::HWY_NAMESPACE::add_scaled(sum, call.shares + i * share + at * width, 1.0f, width);
    unpack_row(call.to.dmixed, s.dtype, row * s.width + s.q_first + key, sum, s.key_dim, 1.0f);
    unpack_row(call.to.dmixed, s.dtype, row * s.width + s.k_first + key, sum + s.key_dim, s.key_dim, 1.0f);
  }
}

}  // namespace strata::cpu::recurrence::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::recurrence {
HWY_EXPORT(backward);
HWY_EXPORT(state_gradient);
HWY_EXPORT(add_shares);

void backward_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(backward)(call, task, memory);
}
void state_gradient_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(state_gradient)(call, task, memory);
}
void finish_keys(const Call& call, int64_t first, int64_t rows) {
  HWY_DYNAMIC_DISPATCH(add_shares)(call, first, rows);
}

}  // namespace strata::cpu::recurrence
#endif
