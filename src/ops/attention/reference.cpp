#include <algorithm>
#include <cmath>

#include "kernels/reference/attend.h"
#include "ops/attention/attention.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// Attention over [q | k | v]: row t of a sequence sees the keys from kv_begin (or its window) to itself, or
// to kv_end where not causal.
template <typename Op>
Attention of_sequences(const Arrays<Op>& at) {
  const Array &qkv = at.in.qkv, &begins = at.in.kv_begin, &ends = at.in.kv_end;
  const int64_t row = qkv.shape[1], q = qkv.segments[0], k = qkv.segments[1],
                length = at.attrs.sequence_length;
  Attention a = attention_of(at.attrs, {qkv, row, 0}, q, {qkv, row, q}, k, {qkv, row, q + k}, length);
  a.bias = at.in.bias;
  a.seen = [=, window = at.attrs.window, causal = at.attrs.causal](int64_t n) {
    const int64_t t = n % length;
    Seen seen{.origin = n - t, .end = causal ? t + 1 : length, .position = t};
    if (begins.present()) seen.begin = std::max<int64_t>(0, begins.index_at(n));
    if (ends.present()) seen.end = std::min(seen.end, ends.index_at(n));
    if (window > 0) seen.begin = std::max(seen.begin, t - window + 1);
    return seen;
  };
  return a;
}

}  // namespace

template <>
void compute(const Arrays<ops::Attention>& at) {
  Attention a = of_sequences(at);
  a.sinks = at.in.sinks;
  attend(a, at.out.out, at.out.lse);
  find_greatest_scores(a, at.out.greatest);
}

template <>
void compute(const Arrays<ops::AttentionGrad>& at) {
  const Array& dqkv = at.out.dqkv;
  attend_backward(of_sequences(at), at.in.dout, at.in.out, at.in.lse, dqkv, dqkv, dqkv, at.out.dbias);
}

template <>
void compute(const Arrays<ops::CachedAttention>& at) {
  const Array &qkv = at.in.qkv, &keys = at.out.keys, &values = at.out.values;
  const int64_t row = qkv.shape[1], q = qkv.segments[0], positions = keys.shape[1], width = keys.shape[2];
  Attention a =
      attention_of(at.attrs, {qkv, row, 0}, q, {keys, width, 0}, width, {values, width, 0}, positions);
  a.bias = at.in.bias;
  a.sinks = at.in.sinks;
  a.seen = [&at, positions, window = at.attrs.window, length = a.length](int64_t n) {
    const int64_t place = at.in.position.index_at(n / length) + n % length;
    return Seen{.origin = at.in.slot.index_at(n / length) * positions,
                .begin = window == 0        ? 0
                         : at.attrs.chunked ? place / window * window
                                            : std::max<int64_t>(0, place - window + 1),
                .end = place + 1,
                .position = place};
  };
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    const Seen seen = a.seen(n);
    const int64_t to = (seen.origin + seen.position) * width, from = n * row + q;
    for (int64_t c = 0; c < width; ++c) {
      keys.put(to + c, qkv.at(from + c));
      values.put(to + c, qkv.at(from + width + c));
    }
  }
  attend(a, at.out.out, {});
}

template <>
void compute(const Arrays<ops::SinkGrad>& at) {
  const Array &dout = at.in.dout, &out = at.in.out, &lse = at.in.lse;
  const int64_t size = at.attrs.head_dim, heads = out.shape[1] / size, length = at.attrs.sequence_length;
  for (int64_t head = 0; head < heads; ++head) {
    double sum = 0;
    for (int64_t n = 0; n < out.shape[0]; ++n) {
      double product = 0;
      for (int64_t c = 0; c < size; ++c)
        product += out.at((n * heads + head) * size + c) * dout.at((n * heads + head) * size + c);
      sum -= std::exp(at.in.sinks.at(head) - lse.at((n / length * heads + head) * length + n % length)) *
             product;
    }
    at.out.dsinks.give(head, sum);
  }
}

}  // namespace strata::reference
