#include <algorithm>

#include "kernels/reference/attend.h"
#include "ops/context_attention.h"

namespace strata::reference {
namespace {

// Inputs from `first` on: q, kv, kv_begin?, kv_end?, bias?, rank.
Attention of_rows(const Call& call, size_t first) {
  const auto& attrs = call.attrs.as<ops::ContextAttentionAttrs>();
  const Array &q = call.in[first], &kv = call.in[first + 1], &begins = call.in[first + 2],
              &ends = call.in[first + 3];
  Attention a({.head_dim = attrs.head_dim,
               .sequence_length = attrs.sequence_length,
               .scale = attrs.scale,
               .softcap = attrs.softcap,
               .bias_zero = attrs.bias_zero},
              q.shape[0], q.shape[1], kv.segments[0]);
  a.encoder_length = attrs.kv_length;
  a.q = {q, q.shape[1], 0};
  a.k = {kv, kv.shape[1], 0};
  a.v = {kv, kv.shape[1], kv.segments[0]};
  a.bias = call.in[first + 4];
  const int64_t index = attrs.ranks > 1 ? call.in[first + 5].index_at(attrs.axis) : 0;
  a.seen = [=, length = a.length, causal = attrs.causal, window = attrs.window, ranks = attrs.ranks,
            keys = attrs.kv_length](int64_t n) {
    const int64_t piece = length / 2, row = n % length;
    const int64_t place = row < piece ? index * piece + row : (2 * ranks - 1 - index) * piece + row - piece;
    Seen seen{.origin = n / length * keys, .end = causal ? place + 1 : keys, .position = place};
    if (begins.present()) seen.begin = std::max<int64_t>(0, begins.index_at(n));
    if (ends.present()) seen.end = std::min(seen.end, ends.index_at(n));
    if (window > 0) seen.begin = std::max(seen.begin, place - window + 1);
    return seen;
  };
  return a;
}

// (q, kv, kv_begin?, kv_end?, bias?, rank) → out, lse
void context_attention(const Call& call) {
  attend(of_rows(call, 0), call.out[0], call.out[1]);
}

// (dout, out, lse, q, kv, kv_begin?, kv_end?, bias?, rank) → dq, dkv, dbias?
void context_attention_grad(const Call& call) {
  attend_backward(of_rows(call, 3), call.in[0], call.in[1], call.in[2], call.out[0], call.out[1], call.out[1],
                  call.out[2]);
}

// Moves rows of `width` elements from one place of a row to another.
void copy_columns(const Array& from, int64_t first, const Array& to, int64_t at, int64_t width) {
  for (int64_t row = 0; row < from.shape[0]; ++row) {
    for (int64_t c = 0; c < width; ++c)
      to.put(row * to.shape[1] + at + c, from.at(row * from.shape[1] + first + c));
  }
}

// (qkv) → q, kv
void split_qkv(const Call& call) {
  const Array &q = call.out[0], &kv = call.out[1];
  copy_columns(call.in[0], 0, q, 0, q.shape[1]);
  copy_columns(call.in[0], q.shape[1], kv, 0, kv.shape[1]);
}

// (q, kv) → qkv
void join_qkv(const Call& call) {
  const Array &q = call.in[0], &kv = call.in[1];
  copy_columns(q, 0, call.out[0], 0, q.shape[1]);
  copy_columns(kv, 0, call.out[0], q.shape[1], kv.shape[1]);
}

}  // namespace

std::span<const Row> context_attention_kernels() {
  static const Row kRows[] = {
      {&ops::kSplitQkv, split_qkv},
      {&ops::kJoinQkv, join_qkv},
      {&ops::kContextAttention, context_attention},
      {&ops::kContextAttentionGrad, context_attention_grad},
  };
  return kRows;
}

}  // namespace strata::reference
