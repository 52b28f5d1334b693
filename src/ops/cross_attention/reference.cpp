#include <algorithm>

#include "kernels/reference/attend.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

template <typename Op>
Attention of_two(const Arrays<Op>& at) {
  const Array &q = at.in.q, &kv = at.in.kv, &begins = at.in.kv_begin, &ends = at.in.kv_end;
  const int64_t k = kv.segments[0], keys = at.attrs.encoder_length;
  Attention a = attention_of(at.attrs, {q, q.shape[1], 0}, q.shape[1], {kv, kv.shape[1], 0}, k,
                             {kv, kv.shape[1], k}, keys);
  a.seen = [=, length = a.length](int64_t n) {
    return Seen{.origin = n / length * keys,
                .begin = begins.present() ? std::max<int64_t>(0, begins.index_at(n)) : 0,
                .end = ends.present() ? ends.index_at(n) : keys};
  };
  return a;
}

}  // namespace

template <>
void compute(const Arrays<ops::CrossAttention>& at) {
  attend(of_two(at), at.out.out, at.out.lse);
}

template <>
void compute(const Arrays<ops::CrossAttentionGrad>& at) {
  attend_backward(of_two(at), at.in.dout, at.in.out, at.in.lse, at.out.dq, at.out.dkv, at.out.dkv, {});
}

template <>
void compute(const Arrays<ops::CachedCrossAttention>& at) {
  const Array &q = at.in.q, &keys = at.in.keys;
  const int64_t positions = keys.shape[1], width = keys.shape[2];
  Attention a = attention_of(at.attrs, {q, q.shape[1], 0}, q.shape[1], {keys, width, 0}, width,
                             {at.in.values, width, 0}, positions);
  a.seen = [&at, positions, length = a.length](int64_t n) {
    return Seen{.origin = at.in.slot.index_at(n / length) * positions,
                .end = at.in.encoder_end.index_at(n / length)};
  };
  attend(a, at.out.out, {});
}

template <>
void compute(const Arrays<ops::StoreCross>& at) {
  const Array &kv = at.in.kv, &slot = at.in.slot, &keys = at.out.keys, &values = at.out.values;
  const int64_t positions = keys.shape[1], width = keys.shape[2], rows = kv.shape[0] / slot.shape[0];
  for (int64_t n = 0; n < kv.shape[0]; ++n) {
    const int64_t to = (slot.index_at(n / rows) * positions + n % rows) * width;
    for (int64_t c = 0; c < width; ++c) {
      keys.put(to + c, kv.at(2 * n * width + c));
      values.put(to + c, kv.at((2 * n + 1) * width + c));
    }
  }
}

template <>
void compute(const Arrays<ops::DocumentEnds>& at) {
  const Array &q_begin = at.in.q_begin, &k_begin = at.in.k_begin;
  const int64_t length = at.attrs.sequence_length, keys = at.attrs.encoder_length;
  for (int64_t n = 0; n < q_begin.shape[0]; ++n) {
    int64_t end = 0;
    for (int64_t j = 0; j < keys; ++j)
      if (k_begin.index_at(n / length * keys + j) == q_begin.index_at(n)) end = j + 1;
    at.out.ends.put(n, static_cast<double>(end));
  }
}

}  // namespace strata::reference
