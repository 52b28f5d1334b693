// Recurrence, forward: the outputs and states of a range's heads, chunk by chunk; one row with a cache; maps.
#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence_forward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/recurrence_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::recurrence::HWY_NAMESPACE {

// Rows of the outputs from `begin` to `end`, of one head, to 0.
HWY_ATTR void clear_outputs(const Call& call, int64_t head, int64_t begin, int64_t end) {
  const RecurrenceShape& s = call.shape;
  const int64_t bytes = s.value_dim * size_of(s.dtype);
  auto* const out = static_cast<std::byte*>(call.out);
  for (int64_t row = begin; row < end; ++row)
    std::fill_n(out + (row * s.value_heads + head) * bytes, bytes, std::byte{0});
}

HWY_ATTR void put_outputs(const Call& call, const Sizes& n, const Chunk& chunk, int64_t head,
                          const float* state) {
  const RecurrenceShape& s = call.shape;
  const ChunkScratch& w = chunk.at();
  const ChunkRows& rows = chunk.rows();
  chunk.outward_rows(rows.padded, n.values, n.keys, chunk.q_of_state(), chunk.values(state),
                     {w.o, n.value_stride, 1, chunk.row_decay()});
  chunk.outward_rows(rows.padded, n.values, rows.padded, chunk.pairs(w.p), chunk.values(w.u),
                     adding_to(w.o, n.value_stride), Part::kLower);
  for (int64_t i = 0; i < rows.rows; ++i) {
    float* const o = w.o + i * n.value_stride;
    if (call.in.skip != nullptr) {
      const Vector skip = constant(call.in.skip[head]);
      const float* const v = w.rest + i * n.value_stride;
      for (int64_t c = 0; c < n.values; c += kLanes) store(o + c, hn::MulAdd(skip, load(v + c), load(o + c)));
    }
    unpack_row(call.out, s.dtype, ((rows.first + i) * s.value_heads + head) * s.value_dim, o, s.value_dim,
               1.0f);
  }
}

HWY_ATTR void forward(const Call& call, int64_t task, void* memory) {
  const RecurrenceShape& s = call.shape;
  const Sizes n(s);
  Carver carver(memory);
  const ForwardScratch w(carver, s, n);
  const TaskHeads heads(s, task);
  Chunk chunk(call, n, w.chunk);
  const CachedStates* const cache = call.cache;
  const int64_t entry = cache != nullptr ? cache->slot[heads.range] : heads.range;
  const int64_t rows = cache != nullptr ? cache->count[heads.range] : s.rows;
  const float* from = cache != nullptr ? cache->states : call.in.before;
  if (cache != nullptr && cache->position[heads.range] == 0 && rows > 0) from = nullptr;
  for (int64_t h = 0; h < heads.count; ++h)
    load_state(s, n, w.states + h * n.state(),
               from != nullptr ? from + call.state_offset(entry, heads.first + h) : nullptr);
  const int64_t first = heads.range * s.rows;
  for (int64_t begin = 0; begin < rows; begin += s.chunk) {
    chunk.load_keys({first + begin, std::min(s.chunk, rows - begin)}, heads.key_head, true);
    for (int64_t h = 0; h < heads.count; ++h) {
      const int64_t head = heads.first + h;
      float* const state = w.states + h * n.state();
      chunk.load_gates(head);
      chunk.make_pairs(true);
      chunk.load_v(head);
      chunk.solve(state, w.chunk.f);
      put_outputs(call, n, chunk, head, state);
      if (begin + s.chunk < rows || cache != nullptr) chunk.update_state(state, state);
    }
  }
  if (cache == nullptr) return;
  for (int64_t h = 0; h < heads.count; ++h) {
    store_state(s, n, cache->states + call.state_offset(entry, heads.first + h), w.states + h * n.state());
    clear_outputs(call, heads.first + h, first + rows, first + s.rows);
  }
}

// [N | M] of one head, as columns of one state: v has 0 in those of M, which begins as the identity.
HWY_ATTR void map(const Call& call, int64_t task, void* memory) {
  const RecurrenceShape& s = call.shape;
  const int64_t columns = padded_columns<float>(s.value_dim);
  const Sizes n(s, s.delta ? padded_columns<float>(s.key_dim) : 0);
  Carver carver(memory);
  const ForwardScratch w(carver, s, n);
  const int64_t range = task / s.value_heads, head = task % s.value_heads, first = range * s.rows;
  Chunk chunk(call, n, w.chunk);
  clear(w.states, n.state());
  for (int64_t c = 0; s.delta && c < s.key_dim; ++c) w.states[c * n.value_stride + columns + c] = 1;
  double decay = 0;
  for (int64_t begin = 0; begin < s.rows; begin += s.chunk) {
    const ChunkRows rows(first + begin, std::min(s.chunk, s.rows - begin));
    chunk.load_keys(rows, head * s.key_heads / s.value_heads, false);
    chunk.load_gates(head);
    chunk.make_pairs(false);
    chunk.load_v(head);
    for (int64_t i = 0; i < rows.padded; ++i)
      clear(w.chunk.rest + i * n.value_stride + columns, n.values - columns);
    chunk.solve(w.states, w.chunk.f);
    chunk.update_state(w.states, w.states);
    for (int64_t row = rows.first; row < rows.first + rows.rows && !s.delta; ++row)
      decay += static_cast<double>(call.in.g[row * s.value_heads + head]);
  }
  const int64_t m = s.delta ? s.key_dim * s.key_dim : 1;
  float* const to = call.map + (range * s.value_heads + head) * (m + call.state_size());
  store_state(s, n, to + m, w.states);
  if (s.delta) {
    for (int64_t c = 0; c < s.key_dim; ++c)
      std::copy_n(w.states + c * n.value_stride + columns, s.key_dim, to + c * s.key_dim);
    return;
  }
  bool begins = false;
  for (int64_t row = first; row < first + s.rows && call.in.positions != nullptr; ++row)
    begins = begins || call.in.positions[row] == 0;
  *to = begins ? 0.0f : static_cast<float>(std::exp(decay));
}

// A row of one head with the state of a cache, in place. V need not be padded.
template <typename T>
HWY_INLINE void row_with_cache(const Call& call, const T*, int64_t sequence, int64_t head) {
  using simd::HWY_NAMESPACE::load;
  using simd::HWY_NAMESPACE::store;
  const RecurrenceShape& s = call.shape;
  const CachedStates& cache = *call.cache;
  const int64_t keys = s.key_dim, values = s.value_dim;
  float* const state = cache.states + call.state_offset(cache.slot[sequence], head);
  if (cache.count[sequence] == 0) return clear_outputs(call, head, sequence, sequence + 1);
  if (cache.position[sequence] == 0) std::fill_n(state, call.state_size(), 0.0f);
  const T* const mixed = static_cast<const T*>(call.in.mixed) + sequence * s.width;
  const int64_t key = head * s.key_heads / s.value_heads * keys;
  const T *const q = mixed + s.q_first + key, *const k = mixed + s.k_first + key,
                 *const v = mixed + s.v_first + head * values;
  float q_of[kMostKeys], k_of[kMostKeys], decay[kMostKeys];
  const float* const g = call.in.g + (sequence * s.value_heads + head) * (s.by_channel ? keys : 1);
  float q_squares = 0, k_squares = 0;
  for (int64_t c = 0; c < keys; ++c) {
    q_of[c] = static_cast<float>(q[c]);
    k_of[c] = static_cast<float>(k[c]);
    q_squares += q_of[c] * q_of[c];
    k_squares += k_of[c] * k_of[c];
    decay[c] = s.by_channel || c == 0 ? std::exp(g[c]) : decay[0];
  }
  for (int64_t c = 0; c < keys; ++c) {
    q_of[c] *= s.l2_norm ? s.scale / std::sqrt(q_squares + 1e-6f) : s.scale;
    k_of[c] *= s.l2_norm ? 1 / std::sqrt(k_squares + 1e-6f) : 1;
  }
  const float beta = call.in.beta[sequence * s.value_heads + head];
  const float skip = call.in.skip != nullptr ? call.in.skip[head] : 0.0f;
  T* const out = static_cast<T*>(call.out) + (sequence * s.value_heads + head) * values;
  simd::HWY_NAMESPACE::for_vectors(values, [&](int64_t j, auto span) HWY_ATTR {
    Vector u = load(v + j, span);
    const Vector through = hn::Mul(constant(skip), u);
    for (int64_t c = 0; c < keys; ++c) {
      float* const row = state + c * values + j;
      const Vector left = hn::Mul(constant(decay[c]), load(row, span));
      store(row, left, span);
      if (s.delta) u = hn::NegMulAdd(constant(k_of[c]), left, u);
    }
    u = hn::Mul(constant(beta), u);
    Vector o = through;
    for (int64_t c = 0; c < keys; ++c) {
      float* const row = state + c * values + j;
      const Vector now = hn::MulAdd(constant(k_of[c]), u, load(row, span));
      store(row, now, span);
      o = hn::MulAdd(constant(q_of[c]), now, o);
    }
    store(out + j, o, span);
  });
}
HWY_ATTR void one_row(const Call& call, int64_t task) {
  const int64_t heads = call.shape.value_heads;
  attention::HWY_NAMESPACE::with_type(call.shape.dtype, [&](const auto* type) HWY_ATTR {
    row_with_cache(call, type, task / heads, task % heads);
  });
}

HWY_ATTR void compose(const RecurrenceMaps& shape, float* to, const float* m, bool across, const float* from,
                      const float* more) {
  using simd::HWY_NAMESPACE::load;
  using simd::HWY_NAMESPACE::store;
  const int64_t keys = shape.key_dim, values = shape.value_dim;
  for (int64_t c = 0; c < keys; ++c) {
    simd::HWY_NAMESPACE::for_vectors(values, [&](int64_t j, auto span) HWY_ATTR {
      Vector sum = load(more + c * values + j, span);
      if (shape.delta) {
        for (int64_t x = 0; x < keys; ++x)
          sum = hn::MulAdd(constant(m[across ? x * keys + c : c * keys + x]),
                           load(from + x * values + j, span), sum);
      } else {
        sum = hn::MulAdd(constant(*m), load(from + c * values + j, span), sum);
      }
      store(to + c * values + j, sum, span);
    });
  }
}

}  // namespace strata::cpu::recurrence::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::recurrence {
HWY_EXPORT(forward);
HWY_EXPORT(map);
HWY_EXPORT(one_row);
HWY_EXPORT(compose);

void forward_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(forward)(call, task, memory);
}
void map_task(const Call& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(map)(call, task, memory);
}
void cached_row(const Call& call, int64_t task) {
  HWY_DYNAMIC_DISPATCH(one_row)(call, task);
}
void compose_step(const RecurrenceMaps& shape, float* to, const float* m, bool across, const float* from,
                  const float* more) {
  HWY_DYNAMIC_DISPATCH(compose)(shape, to, m, across, from, more);
}

}  // namespace strata::cpu::recurrence
#endif
