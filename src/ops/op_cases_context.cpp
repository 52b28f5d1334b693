// Rows of attention whose rows ranks share.
#include <fmt/core.h>

#include <limits>

#include "ops/case_operands.h"
#include "ops/context_attention.h"

namespace strata::device::op_rows {
namespace {

// Four sequences of 18 on three ranks: each has two pieces of three rows.
constexpr int64_t kSequences = 4, kRanks = 3, kLength = 6, kKeys = kRanks * kLength, kPiece = kLength / 2;
constexpr int64_t kRows = kSequences * kLength;
constexpr int64_t kHeadDim = 8, kHeads = 8, kQ = kHeads * kHeadDim, kKv = kQ / 2;

int64_t place_of(int64_t row, int64_t rank) {
  const int64_t i = row % kLength;
  return i < kPiece ? rank * kPiece + i : (2 * kRanks - 1 - rank) * kPiece + i - kPiece;
}
// The documents [0, 4) and [4, 18).
Operand kv_begin(int64_t rank) {
  return i32_by(kRows, [rank](int64_t i) { return place_of(i, rank) >= 4 ? 4.0 : 0.0; });
}
Operand kv_end(int64_t rank) {
  return i32_by(kRows, [rank](int64_t i) { return place_of(i, rank) >= 4 ? 18.0 : 4.0; });
}
// What an encoder's documents [0, 3) and [3, 18) give: the first, the second or none of them.
Operand cross_begin() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? -1.0 : i % kLength >= 2 ? 3.0 : 0.0; });
}
Operand cross_end() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 0.0 : i % kLength >= 2 ? 18.0 : 3.0; });
}

ops::ContextAttentionAttrs attrs_of(bool causal, int64_t window, double softcap, int64_t bias_zero) {
  return {.head_dim = kHeadDim,
          .sequence_length = kLength,
          .kv_length = kKeys,
          .scale = 0.3,
          .window = window,
          .softcap = softcap,
          .causal = causal,
          .bias_zero = bias_zero,
          .axis = Axis::kContext,
          .ranks = kRanks};
}

}  // namespace

void add_context_rows(std::vector<OpCase>& cases) {
  const Operand q = act({kRows, kQ}), kv = act({kSequences * kKeys, 2 * kKv}, {kKv, kKv});
  const Operand lse =
      f32_of({kSequences, kHeads, kLength}, [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); });
  const auto bias = [](int64_t width) { return f32({kHeads, width}); };
  struct Form {
    std::string name;
    int64_t rank;
    Operand begin, end, bias;
    ops::ContextAttentionAttrs attrs;
    Operand sinks = absent();
  };
  const Operand sinks = f32({kHeads});
  for (const Form& form :
       {Form{"", 0, kv_begin(0), absent(), absent(), attrs_of(true, 0, 0, 0)},
        Form{"_inner", 2, kv_begin(2), absent(), absent(), attrs_of(true, 0, 0, 0)},
        Form{"_plain", 1, absent(), absent(), absent(), attrs_of(true, 0, 0, 0)},
        Form{"_window", 0, kv_begin(0), absent(), absent(), attrs_of(true, 5, 0, 0)},
        Form{"_softcap", 1, kv_begin(1), absent(), absent(), attrs_of(true, 4, 0.7, 0)},
        Form{"_biased", 0, kv_begin(0), absent(), bias(19), attrs_of(true, 0, 0, 17)},
        Form{"_encoder", 1, kv_begin(1), kv_end(1), absent(), attrs_of(false, 0, 0, 0)},
        Form{"_biased_encoder", 0, kv_begin(0), kv_end(0), bias(36), attrs_of(false, 0, 0, 18)},
        Form{"_cross", 1, cross_begin(), cross_end(), absent(), attrs_of(false, 0, 0, 0)},
        Form{"_sinks", 1, kv_begin(1), absent(), absent(), attrs_of(true, 5, 0, 0), sinks}}) {
    const Operand rank = rank_at({{Axis::kShard, 7}, {Axis::kContext, form.rank}});
    cases.push_back({"context_attention" + form.name,
                     &ops::kContextAttention,
                     {q, kv, form.begin, form.end, form.bias, rank, form.sinks},
                     form.attrs});
    if (!form.sinks.absent) continue;
    cases.push_back({"context_attention_grad" + form.name,
                     &ops::kContextAttentionGrad,
                     {q, q, lse, q, kv, form.begin, form.end, form.bias, rank},
                     form.attrs});
  }
  // Keys of one rank that come by: two pieces of three.
  const Operand coming = act({kRows, 2 * kKv}, {kKv, kKv});
  struct Step {
    std::string name;
    int64_t rank, step;
    Operand begin, end;
    ops::ContextAttentionAttrs attrs;
  };
  for (const Step& step : {Step{"_ring_own", 1, 0, kv_begin(1), absent(), attrs_of(true, 0, 0, 0)},
                           Step{"_ring_before", 2, 1, kv_begin(2), absent(), attrs_of(true, 0, 0, 0)},
                           Step{"_ring_around", 0, 1, absent(), absent(), attrs_of(true, 0, 0.7, 0)},
                           Step{"_ring_window", 0, 2, kv_begin(0), absent(), attrs_of(true, 5, 0, 0)},
                           Step{"_ring_encoder", 1, 1, kv_begin(1), kv_end(1), attrs_of(false, 0, 0, 0)},
                           Step{"_ring_whole_encoder", 1, 2, absent(), absent(), attrs_of(false, 0, 0, 0)}}) {
    ops::ContextAttentionAttrs attrs = step.attrs;
    attrs.kv_length = kLength;
    attrs.ring_step = step.step;
    const Operand rank = rank_at({{Axis::kShard, 7}, {Axis::kContext, step.rank}});
    cases.push_back({"context_attention" + step.name,
                     &ops::kContextAttention,
                     {q, coming, step.begin, step.end, absent(), rank, step.step == 0 ? sinks : absent()},
                     attrs});
    cases.push_back({"context_attention_grad" + step.name,
                     &ops::kContextAttentionGrad,
                     {q, q, lse, q, coming, step.begin, step.end, absent(), rank},
                     attrs});
  }
  // The first two rows of a sequence see none of the second's keys, the last row none of either's.
  const auto partial = [](int64_t without) {
    return f32_of({kSequences, kHeads, kLength}, [without](int64_t i) {
      const int64_t row = i % kLength;
      const bool none = row < without || row == kLength - 1;
      return none ? -std::numeric_limits<double>::infinity() : 0.3 * static_cast<double>(i % 11) - 1;
    });
  };
  ops::ContextAttentionAttrs merge = attrs_of(true, 0, 0, 0);
  merge.kv_length = kLength;
  merge.ring_step = 1;
  OpCase merged{"merge_attention",
                &ops::kMergeAttention,
                {q, partial(0), q, partial(2), absent(), absent(), absent(), absent(), absent(), absent()},
                merge};
  merged.differentiable = {};  // what it is made of crosses between ranks: tests of meshes
  cases.push_back(merged);
  OpCase split{"split_qkv", &ops::kSplitQkv, {act({kRows, kQ + 2 * kKv}, {kQ, kKv, kKv})}};
  split.differentiable = {0, 1};
  cases.push_back(split);
  cases.push_back({"join_qkv", &ops::kJoinQkv, {q, act({kRows, 2 * kKv}, {kKv, kKv})}});
}

}  // namespace strata::device::op_rows
