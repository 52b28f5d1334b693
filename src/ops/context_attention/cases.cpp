#include "ops/cases.h"

#include <limits>

#include "ops/attention/case_operands.h"
#include "ops/context_attention/context_attention.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Four sequences of 18 on three ranks: each has two chunks of three rows.
constexpr int64_t kContextRanks = 3, kContextKeys = kContextRanks * heads::kLength,
                  kPiece = heads::kLength / 2;

int64_t place_in_sequence(int64_t row, int64_t rank) {
  const int64_t i = row % heads::kLength;
  return i < kPiece ? rank * kPiece + i : (2 * kContextRanks - 1 - rank) * kPiece + i - kPiece;
}
// The documents [0, 4) and [4, 18).
Operand context_begin(int64_t rank) {
  return i32_by(heads::kRows, [rank](int64_t i) { return place_in_sequence(i, rank) >= 4 ? 4.0 : 0.0; });
}
Operand context_end(int64_t rank) {
  return i32_by(heads::kRows, [rank](int64_t i) { return place_in_sequence(i, rank) >= 4 ? 18.0 : 4.0; });
}
Operand context_rank(int64_t rank) {
  return rank_at({{Axis::kShard, 7}, {Axis::kContext, rank}});
}

Operand context_queries() {
  return act({heads::kRows, heads::kQ});
}
Operand keys_values(int64_t rows, int64_t value_dim = heads::kHeadDim) {
  const int64_t values = heads::kKv / heads::kHeadDim * value_dim;
  return act({rows, heads::kKv + values}, {heads::kKv, values});
}

ops::ContextAttentionAttrs in_context(bool causal, int64_t window = 0, double softcap = 0,
                                      int64_t bias_zero = 0) {
  return {.head_dim = heads::kHeadDim,
          .sequence_length = heads::kLength,
          .kv_length = kContextKeys,
          .scale = 0.3,
          .window = window,
          .softcap = softcap,
          .causal = causal,
          .bias_zero = bias_zero,
          .axis = Axis::kContext,
          .ranks = kContextRanks};
}
// The keys of one rank in the ring: two chunks of three.
ops::ContextAttentionAttrs in_ring(int64_t step, bool causal, int64_t window = 0, double softcap = 0) {
  ops::ContextAttentionAttrs attrs = in_context(causal, window, softcap);
  attrs.kv_length = heads::kLength;
  attrs.ring_step = step;
  return attrs;
}

// Values of another size than keys.
ops::ContextAttentionAttrs with_values(ops::ContextAttentionAttrs attrs, int64_t value_dim) {
  attrs.value_dim = value_dim;
  return attrs;
}
Operand attended(const ops::ContextAttentionAttrs& attrs) {
  return act({heads::kRows, heads::kHeads * attrs.size_of_value()});
}

// A case of the op and of its gradient, which takes no sinks.
struct InContext {
  std::string name;
  int64_t rank;
  Operand begin, end, bias;
  ops::ContextAttentionAttrs attrs;
  Operand sinks = absent();

  Operand kv() const { return keys_values(heads::kSequences * attrs.kv_length, attrs.size_of_value()); }
};
std::vector<InContext> forms_in_context() {
  const auto bias = [](int64_t width) { return f32({heads::kHeads, width}); };
  const Operand none = absent(), sinks = f32({heads::kHeads});
  return {{"", 0, context_begin(0), none, none, in_context(true)},
          {"_inner", 2, context_begin(2), none, none, in_context(true)},
          {"_plain", 1, none, none, none, in_context(true)},
          {"_window", 0, context_begin(0), none, none, in_context(true, 5)},
          {"_softcap", 1, context_begin(1), none, none, in_context(true, 4, 0.7)},
          {"_biased", 0, context_begin(0), none, bias(19), in_context(true, 0, 0, 17)},
          {"_encoder", 1, context_begin(1), context_end(1), none, in_context(false)},
          {"_biased_encoder", 0, context_begin(0), context_end(0), bias(36), in_context(false, 0, 0, 18)},
          {"_cross", 1, heads::cross_begin(), heads::cross_end(kContextKeys), none, in_context(false)},
          {"_sinks", 1, context_begin(1), none, none, in_context(true, 5), sinks},
          {"_narrow_values", 2, context_begin(2), none, none, with_values(in_context(true), 6)},
          {"_wide_values", 1, context_begin(1), context_end(1), none, with_values(in_context(false), 12)},
          {"_ring_own", 1, context_begin(1), none, none, in_ring(0, true), sinks},
          {"_ring_before", 2, context_begin(2), none, none, in_ring(1, true)},
          {"_ring_around", 0, none, none, none, in_ring(1, true, 0, 0.7)},
          {"_ring_window", 0, context_begin(0), none, none, in_ring(2, true, 5)},
          {"_ring_narrow_values", 2, context_begin(2), none, none, with_values(in_ring(1, true), 6)},
          {"_ring_encoder", 1, context_begin(1), context_end(1), none, in_ring(1, false)},
          {"_ring_whole_encoder", 1, none, none, none, in_ring(2, false)}};
}

constexpr int64_t kTimedRows = 256, kTimedKeys = 512;  // of a sequence: those of a rank, and all
const ops::ContextAttentionAttrs kTimedContext{.head_dim = heads::kTimedHeadDim,
                                               .sequence_length = kTimedRows,
                                               .kv_length = kTimedKeys,
                                               .scale = 0.125,
                                               .causal = true,
                                               .ranks = kTimedKeys / kTimedRows};
Operand timed_context_keys(int64_t rows = kTimedTokens / kTimedRows * kTimedKeys) {
  return act({rows, 2 * kTimedKvWidth}, {kTimedKvWidth, kTimedKvWidth});
}
Operand timed_context_lse() {
  return f32({kTimedTokens / kTimedRows, heads::kTimedHeads, kTimedRows});
}

}  // namespace

template <>
void cases<ops::ContextAttention>(Cases& to) {
  for (const InContext& form : forms_in_context())
    to.add<ops::ContextAttention>("context_attention" + form.name,
                                  {.q = context_queries(),
                                   .kv = form.kv(),
                                   .kv_begin = form.begin,
                                   .kv_end = form.end,
                                   .bias = form.bias,
                                   .rank = context_rank(form.rank),
                                   .sinks = form.sinks},
                                  form.attrs);
  for (InContext form : forms_in_context()) {
    form.attrs.greatest_parts = 1;
    to.add<ops::ContextAttention>("context_attention_greatest" + form.name,
                                  {.q = context_queries(),
                                   .kv = form.kv(),
                                   .kv_begin = form.begin,
                                   .kv_end = form.end,
                                   .bias = form.bias,
                                   .rank = context_rank(form.rank),
                                   .sinks = form.sinks},
                                  form.attrs, {.replicated_only = true, .ragged = true});
  }
  to.time<ops::ContextAttention>({.q = timed_rows(),
                                  .kv = timed_context_keys(),
                                  .kv_begin = zeros({kTimedTokens}, DType::kI32),
                                  .rank = rank_at({})},
                                 kTimedContext);
}

template <>
void cases<ops::ContextAttentionGrad>(Cases& to) {
  for (const InContext& form : forms_in_context()) {
    if (form.name == "_sinks") continue;
    to.add<ops::ContextAttentionGrad>("context_attention_grad" + form.name,
                                      {.dout = attended(form.attrs),
                                       .out = attended(form.attrs),
                                       .lse = heads::lse(),
                                       .q = context_queries(),
                                       .kv = form.kv(),
                                       .kv_begin = form.begin,
                                       .kv_end = form.end,
                                       .bias = form.bias,
                                       .rank = context_rank(form.rank)},
                                      form.attrs);
  }
  to.time<ops::ContextAttentionGrad>({.dout = timed_rows(),
                                      .out = timed_rows(),
                                      .lse = timed_context_lse(),
                                      .q = timed_rows(),
                                      .kv = timed_context_keys(),
                                      .kv_begin = zeros({kTimedTokens}, DType::kI32),
                                      .rank = rank_at({})},
                                     kTimedContext);
}

template <>
void cases<ops::MergeAttention>(Cases& to) {
  // The first two rows of a sequence see none of the second's keys, the last row none of either's.
  const auto partial = [](int64_t without) {
    return f32_of({heads::kSequences, heads::kHeads, heads::kLength}, [without](int64_t i) {
      const int64_t row = i % heads::kLength;
      const bool none = row < without || row == heads::kLength - 1;
      return none ? -std::numeric_limits<double>::infinity() : 0.3 * static_cast<double>(i % 11) - 1;
    });
  };
  // What its gradient is made of crosses between ranks: tests of meshes.
  for (const auto& [name, attrs] :
       {std::pair{"merge_attention", in_ring(1, true)},
        std::pair{"merge_attention_narrow_values", with_values(in_ring(1, true), 6)}}) {
    const Operand out = attended(attrs);
    to.add<ops::MergeAttention>(name,
                                {.out = out, .lse = partial(0), .more_out = out, .more_lse = partial(2)},
                                attrs, {.differentiable = std::vector<OutputName<ops::MergeAttention>>{}});
  }
  to.time<ops::MergeAttention>({.out = timed_rows(),
                                .lse = timed_context_lse(),
                                .more_out = timed_rows(),
                                .more_lse = timed_context_lse()},
                               kTimedContext);
}

template <>
void cases<ops::SplitQkv>(Cases& to) {
  to.add<ops::SplitQkv>("split_qkv", {.qkv = heads::qkv()}, {},
                        {.differentiable = std::vector<OutputName<ops::SplitQkv>>{"q", "kv"}});
  to.time<ops::SplitQkv>({.qkv = timed_qkv()});
}

template <>
void cases<ops::JoinQkv>(Cases& to) {
  to.add<ops::JoinQkv>("join_qkv", {.q = context_queries(), .kv = keys_values(heads::kRows)});
  to.time<ops::JoinQkv>({.q = timed_rows(), .kv = timed_context_keys(kTimedTokens)});
}

}  // namespace strata::device
