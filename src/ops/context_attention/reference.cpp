#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attend.h"
#include "ops/context_attention/context_attention.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// The position in its sequence of a row of a rank that has two chunks.
int64_t place_of_row(int64_t row, int64_t piece, int64_t rank, int64_t ranks) {
  return row < piece ? rank * piece + row : (2 * ranks - 1 - rank) * piece + row - piece;
}

template <typename Op>
Attention of_rows(const Arrays<Op>& at) {
  const Array &q = at.in.q, &kv = at.in.kv, &begins = at.in.kv_begin, &ends = at.in.kv_end;
  const ops::ContextAttentionAttrs& attrs = at.attrs;
  const int64_t k = kv.segments[0];
  Attention a = attention_of(attrs, {q, q.shape[1], 0}, q.shape[1], {kv, kv.shape[1], 0}, k,
                             {kv, kv.shape[1], k}, attrs.kv_length);
  a.bias = at.in.bias;
  const int64_t index = place_in(at.in.rank, attrs.axis, attrs.ranks);
  a.seen = [=, length = a.length](int64_t n) {
    const int64_t piece = length / 2;
    const int64_t place = place_of_row(n % length, piece, index, attrs.ranks);
    Seen seen{.origin = n / length * attrs.kv_length,
              .end = attrs.causal ? place + 1 : std::numeric_limits<int64_t>::max(),
              .position = place};
    if (begins.present()) seen.begin = std::max<int64_t>(0, begins.index_at(n));
    if (ends.present()) seen.end = std::min(seen.end, ends.index_at(n));
    if (attrs.window > 0) seen.begin = std::max(seen.begin, place - attrs.window + 1);
    if (attrs.ring_step < 0) {
      seen.end = std::min(seen.end, attrs.kv_length);
      return seen;
    }
    // Among the keys of the rank that they come from.
    const int64_t source = (index + attrs.ranks - attrs.ring_step) % attrs.ranks;
    const auto keys_below = [&](int64_t limit) {
      int64_t keys = 0;
      while (keys < attrs.kv_length && place_of_row(keys, piece, source, attrs.ranks) < limit) ++keys;
      return keys;
    };
    seen.begin = keys_below(seen.begin);
    seen.end = keys_below(seen.end);
    return seen;
  };
  return a;
}

}  // namespace

template <>
void compute(const Arrays<ops::ContextAttention>& at) {
  Attention a = of_rows(at);
  a.sinks = at.in.sinks;
  attend(a, at.out.out, at.out.lse);
  find_greatest_scores(a, at.out.greatest);
}

template <>
void compute(const Arrays<ops::ContextAttentionGrad>& at) {
  attend_backward(of_rows(at), at.in.dout, at.in.out, at.in.lse, at.out.dq, at.out.dkv, at.out.dkv,
                  at.out.dbias);
}

template <>
void compute(const Arrays<ops::MergeAttention>& at) {
  const Array &out = at.out.out, &lse = at.out.lse;
  const int64_t size = at.attrs.size_of_value(), heads = out.shape[1] / size,
                length = at.attrs.sequence_length;
  for (int64_t n = 0; n < out.shape[0]; ++n) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t sum = (n / length * heads + head) * length + n % length;
      const double first = at.in.lse.at(sum), second = at.in.more_lse.at(sum), most = std::max(first, second);
      const double a = std::isinf(most) ? 0 : std::exp(first - most);
      const double b = std::isinf(most) ? 0 : std::exp(second - most);
      for (int64_t i = (n * heads + head) * size; i < (n * heads + head + 1) * size; ++i)
        out.put(i, std::isinf(most) ? 0 : (a * at.in.out.at(i) + b * at.in.more_out.at(i)) / (a + b));
      lse.put(sum, std::isinf(most) ? most : most + std::log(a + b));
    }
  }
}

template <>
void compute(const Arrays<ops::SplitQkv>& at) {
  copy_columns(at.out.q, 0, at.in.qkv, 0, at.out.q.shape[1]);
  copy_columns(at.out.kv, 0, at.in.qkv, at.out.q.shape[1], at.out.kv.shape[1]);
}

template <>
void compute(const Arrays<ops::JoinQkv>& at) {
  copy_columns(at.out.qkv, 0, at.in.q, 0, at.in.q.shape[1]);
  copy_columns(at.out.qkv, at.in.q.shape[1], at.in.kv, 0, at.in.kv.shape[1]);
}

}  // namespace strata::reference
