#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attend.h"
#include "ops/context_attention.h"

namespace strata::reference {
namespace {

// Where in its sequence a row of a rank lies, of those in two pieces.
int64_t place_of(int64_t row, int64_t piece, int64_t rank, int64_t ranks) {
  return row < piece ? rank * piece + row : (2 * ranks - 1 - rank) * piece + row - piece;
}

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
  const int64_t index = attrs.ranks > 1 ? graph::coordinates_in(call.in[first + 5].data)[attrs.axis] : 0;
  a.seen = [=, length = a.length](int64_t n) {
    const int64_t piece = length / 2;
    const int64_t place = place_of(n % length, piece, index, attrs.ranks);
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
      while (keys < attrs.kv_length && place_of(keys, piece, source, attrs.ranks) < limit) ++keys;
      return keys;
    };
    seen.begin = keys_below(seen.begin);
    seen.end = keys_below(seen.end);
    return seen;
  };
  return a;
}

// (q, kv, kv_begin?, kv_end?, bias?, rank, sinks?) → out, lse
void context_attention(const Call& call) {
  Attention a = of_rows(call, 0);
  a.sinks = call.in[6];
  attend(a, call.out[0], call.out[1]);
}

// (dout, out, lse, q, kv, kv_begin?, kv_end?, bias?, rank) → dq, dkv, dbias?
void context_attention_grad(const Call& call) {
  attend_backward(of_rows(call, 3), call.in[0], call.in[1], call.in[2], call.out[0], call.out[1], call.out[1],
                  call.out[2]);
}

// (out, lse, out, lse, …) → out, lse
void merge_attention(const Call& call) {
  const auto& attrs = call.attrs.as<ops::ContextAttentionAttrs>();
  const Array &out = call.out[0], &lse = call.out[1];
  const int64_t heads = out.shape[1] / attrs.head_dim, length = attrs.sequence_length;
  for (int64_t n = 0; n < out.shape[0]; ++n) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = (n / length * heads + head) * length + n % length;
      const double first = call.in[1].at(at), second = call.in[3].at(at), most = std::max(first, second);
      const double a = std::isinf(most) ? 0 : std::exp(first - most);
      const double b = std::isinf(most) ? 0 : std::exp(second - most);
      for (int64_t c = 0; c < attrs.head_dim; ++c) {
        const int64_t i = (n * heads + head) * attrs.head_dim + c;
        out.put(i, std::isinf(most) ? 0 : (a * call.in[0].at(i) + b * call.in[2].at(i)) / (a + b));
      }
      lse.put(at, std::isinf(most) ? most : most + std::log(a + b));
    }
  }
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
      {&ops::kMergeAttention, merge_attention},
  };
  return kRows;
}

}  // namespace strata::reference
