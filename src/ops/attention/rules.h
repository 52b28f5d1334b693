// Shared rules of several kinds of attention. Operands are members of these names.
#pragma once

#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/rules.h"

namespace strata::ops {

inline constexpr Placement kS2 = Placement::sharded(2);

// kv_begin and kv_end, one entry for each of `rows`.
template <typename Op>
void require_key_ranges(const View<Op>& node, int64_t rows, const char* what) {
  for (const graph::Ref* range : {&node.in.kv_begin, &node.in.kv_end})
    if (*range) require(node, (*range)->shape == Shape{rows}, what);
  if constexpr (requires { node.attrs.causal; }) {
    require(node, !node.attrs.causal || !node.in.kv_end, "causal rows end at themselves: leave out kv_end");
    require(node, node.attrs.causal || node.attrs.window == 0,
            "a window counts keys backwards: it needs causal attention");
  }
}

// Of a head's values.
template <typename Attrs>
int64_t size_of_value(const Attrs& attrs) {
  if constexpr (requires { attrs.size_of_value(); }) return attrs.size_of_value();
  return attrs.head_dim;
}

// Rows q of queries, and kv of keys and values that are not their own.
template <typename Op>
void require_queries_keys(const View<Op>& node) {
  const Value &q = *node.in.q, &kv = *node.in.kv;
  const int64_t head_dim = node.attrs.head_dim, value_dim = size_of_value(node.attrs);
  require(node, q.shape.rank() == 2 && q.shape[1] % head_dim == 0,
          "the queries must be whole heads [N, h · hd]");
  require(
      node,
      kv.shape.rank() == 2 && kv.segments.size() == 2 && kv.segments[0] % head_dim == 0 &&
          kv.segments[1] == kv.segments[0] / head_dim * value_dim && q.shape[1] % kv.segments[0] == 0 &&
          kv.dtype == q.dtype,
      "keys and values must be [M, k | v] of whole heads in the queries' dtype, the same number of each, a "
      "divisor of the query heads");
}
template <typename Attrs>
Spec spec_of_greatest(const Attrs& attrs, int64_t heads) {
  return attrs.greatest_parts > 0 ? Spec{DType::kF32, {attrs.greatest_parts, heads}} : Spec::none();
}

// Outputs of attention for q.
template <typename Op>
Outputs<Op> attended_rows(const Value& q, const typename Op::Attrs& attrs) {
  const int64_t length = attrs.sequence_length, heads = q.shape[1] / attrs.head_dim;
  Outputs<Op> rows{.out = {q.dtype, {q.shape[0], heads * size_of_value(attrs)}},
                   .lse = {DType::kF32, {q.shape[0] / length, heads, length}}};
  if constexpr (requires { rows.greatest; }) rows.greatest = spec_of_greatest(attrs, heads);
  return rows;
}

// The bias has an entry for every distance of rows of sequences of `keys` keys.
template <typename Op>
void require_bias(const View<Op>& node, int64_t heads, int64_t keys) {
  if (!node.in.bias) return;
  const auto& attrs = node.attrs;
  const Shape& bias = node.in.bias->shape;
  require(node, bias.rank() == 2 && bias[0] == heads, "the bias must be f32[heads, distances]");
  const int64_t back = (attrs.window > 0 ? std::min(attrs.window, keys) : keys) - 1;
  const int64_t ahead = attrs.causal ? 0 : keys - 1;
  require(node, attrs.bias_zero >= back && attrs.bias_zero + ahead < bias[1],
          "the bias must have an entry for every distance of a key from its query");
  require(node, attrs.softcap == 0, "capped scores take no bias: leave out one of the two");
}

// The cache [entries, …] has an entry for each sequence. Returns [sequences].
template <typename Op>
Shape require_slots(const View<Op>& node, int64_t rows, const Value& cache, const char* whole_sequences) {
  require(node, rows % node.attrs.sequence_length == 0, whole_sequences);
  const int64_t sequences = rows / node.attrs.sequence_length;
  require(node, sequences <= cache.shape[0], "every sequence must have an entry of the cache");
  return Shape{sequences};
}

// Attention of `query_elements` to a number of entries of a cache of keys and one of values, which are read
// whole.
inline Cost cost_of_slots(const Value& cache, int64_t slots, int64_t query_elements, int64_t other_bytes) {
  const double pairs = static_cast<double>(query_elements) * static_cast<double>(cache.shape[1]);
  const int64_t slot_bytes = cache.bytes() / cache.shape[0];
  return {4 * pairs, static_cast<double>(2 * slot_bytes * slots + other_bytes)};
}

// Whole sequences, and heads, of every kind of attention over sequences and of its gradient.
template <typename Op>
Splits<Op> by_sequences_and_heads() {
  graph::Split<Op> sequences = split_alike<Op>(kS0), heads = split_alike<Op>(kS1);
  heads.in.kv_begin = heads.in.kv_end = kR;
  if constexpr (requires { heads.in.rank; }) sequences.in.rank = heads.in.rank = kR;
  if constexpr (requires { heads.in.bias; }) {
    sequences.in.bias = kR;
    heads.in.bias = kS0;
  }
  if constexpr (requires { heads.in.sinks; }) {
    sequences.in.sinks = kR;
    heads.in.sinks = kS0;
  }
  if constexpr (requires { heads.out.dbias; }) {
    sequences.out.dbias = kP;
    heads.out.dbias = kS0;
  }
  return {sequences, heads};
}

// The gradient rule of a kind of attention over sequences, whose gradient is the op Grad.
template <typename Grad, typename Op>
void add_attention_gradient(GradientBuilder& builder, const View<Op>& node) {
  const auto& in = node.in;
  const AttendedRows rows{builder.gradient_of(node.out.out), node.out.out, node.out.lse};
  graph::InIds<Grad> given{};
  given.dout = rows.dout;
  given.out = rows.out;
  given.lse = rows.lse;
  given.kv_begin = in.kv_begin;
  given.kv_end = in.kv_end;
  if constexpr (requires { in.rank; }) given.rank = in.rank;
  if constexpr (requires { in.bias; }) given.bias = in.bias;
  if constexpr (requires { in.qkv; }) {
    given.qkv = in.qkv;
  } else {
    given.q = in.q;
    given.kv = in.kv;
  }
  const auto gradients = add<Grad>(builder.graph(), given, node.attrs);
  if constexpr (requires { in.qkv; }) {
    builder.add_gradient(in.qkv, gradients.dqkv);
  } else {
    builder.add_gradient(in.q, gradients.dq);
    builder.add_gradient(in.kv, gradients.dkv);
  }
  if constexpr (requires { in.bias; }) {
    if (in.bias) builder.add_gradient(in.bias, gradients.dbias);
  }
  if constexpr (requires { in.sinks; }) {
    const int64_t heads = node.out.lse->shape[1], width = node.out.out->shape[1];
    add_sink_gradient(builder, in.sinks, rows, {width / heads, node.attrs.sequence_length});
  }
}

}  // namespace strata::ops
