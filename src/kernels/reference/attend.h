// Attention by its formula, for ops that differ in the layout of queries, keys and values and in the keys that
// a row sees.
#pragma once

#include <functional>

#include "kernels/reference/call.h"

namespace strata::reference {

// One row per token: the elements of a head of token n begin at n · row + first + head · size.
struct Heads {
  Array data;
  int64_t row = 0, first = 0;
};

// The keys that a query sees: [begin, end), numbered from row `origin` of keys and values, and the query's own
// position in that numbering.
struct Seen {
  int64_t origin = 0, begin = 0, end = 0, position = 0;
};

struct Attention {
  int64_t head_dim = 0, value_dim = 0;  // head size of q and k; of v and out
  int64_t heads = 0, kv_heads = 0;
  int64_t sequences = 0, length = 0, encoder_length = 0;  // length: queries; encoder_length: keys
  double scale = 1, softcap = 0;
  Heads q, k, v;
  Array bias = {};  // [heads, width], or absent
  int64_t bias_zero = 0;
  Array sinks = {};                        // [heads], or absent; only for attend
  std::function<Seen(int64_t)> seen = {};  // of query n, numbered through all sequences
  // [queries, count]: the only keys that a query sees, numbered from its origin; -1: none. Absent: all of its range.
  Array chosen = {};
};
// Everything but `seen`, from queries q and keys and values of sequences of `encoder_length`. attrs: the
// attributes of any kind of attention.
template <typename Attrs>
Attention attention_of(const Attrs& attrs, const Heads& q, int64_t q_width, const Heads& k, int64_t kv_width,
                       const Heads& v, int64_t encoder_length) {
  Attention a{.head_dim = attrs.head_dim,
              .value_dim = attrs.head_dim,
              .heads = q_width / attrs.head_dim,
              .kv_heads = kv_width / attrs.head_dim,
              .sequences = q.data.shape[0] / attrs.sequence_length,
              .length = attrs.sequence_length,
              .encoder_length = encoder_length,
              .scale = attrs.scale,
              .softcap = attrs.softcap,
              .q = q,
              .k = k,
              .v = v};
  if constexpr (requires { attrs.size_of_value(); }) a.value_dim = attrs.size_of_value();
  if constexpr (requires { attrs.bias_zero; }) a.bias_zero = attrs.bias_zero;
  return a;
}

// lse[sequences, heads, length] may be absent. A row that sees no key gets 0 and -inf.
void attend(const Attention& attention, const Array& out, const Array& lse);
// greatest[1, heads], if it is there: of each head the greatest scale · q·k, before bias and softcap.
void find_greatest_scores(const Attention& attention, const Array& greatest);
// With p = exp(s − lse): dv += p dout, ds = p (dout·v − dout·out), dq += scale ds k, dk += scale ds q,
// dbias += ds. dq, dk and dv have the layout of q, k and v; dbias may be absent.
void attend_backward(const Attention& attention, const Array& dout, const Array& out, const Array& lse,
                     const Array& dq, const Array& dk, const Array& dv, const Array& dbias);

}  // namespace strata::reference
