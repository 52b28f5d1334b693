#include "ops/cases.h"

#include "ops/attention/case_operands.h"
#include "ops/cross_attention/cross_attention.h"

namespace strata::device {

using namespace op_rows;

namespace {

constexpr int64_t kEncoderLength = 10;
constexpr int64_t kTimedLength = 256, kTimedSource = 512;  // tokens of a sequence, and of its source

Operand cross_queries() {
  return act({heads::kRows, heads::kQ});
}
Operand cross_keys() {
  return act({heads::kSequences * kEncoderLength, 2 * heads::kKv}, {heads::kKv, heads::kKv});
}

ops::CrossAttentionAttrs crossing(double softcap = 0) {
  return {.head_dim = heads::kHeadDim,
          .sequence_length = heads::kLength,
          .scale = 0.3,
          .softcap = softcap,
          .encoder_length = kEncoderLength};
}
struct Crossing {
  std::string name;
  Operand begin, end;
  double softcap;
};
std::vector<Crossing> forms_of_crossing() {
  return {{"", absent(), absent(), 0},
          {"_documents", heads::cross_begin(), heads::cross_end(kEncoderLength), 0},
          {"_softcap", heads::cross_begin(), heads::cross_end(kEncoderLength), 0.7}};
}

Operand timed_cross_keys() {
  return act({kTimedTokens / kTimedLength * kTimedSource, 2 * kTimedKvWidth}, {kTimedKvWidth, kTimedKvWidth});
}
const ops::CrossAttentionAttrs kTimedCrossing{.head_dim = heads::kTimedHeadDim,
                                              .sequence_length = kTimedLength,
                                              .scale = 0.125,
                                              .encoder_length = kTimedSource};

}  // namespace

template <>
void cases<ops::CrossAttention>(Cases& to) {
  for (const auto& [name, begin, end, softcap] : forms_of_crossing())
    to.add<ops::CrossAttention>("cross_attention" + name,
                                {.q = cross_queries(), .kv = cross_keys(), .kv_begin = begin, .kv_end = end},
                                crossing(softcap));
  to.time<ops::CrossAttention>({.q = timed_rows(), .kv = timed_cross_keys()}, kTimedCrossing);
}

template <>
void cases<ops::CrossAttentionGrad>(Cases& to) {
  for (const auto& [name, begin, end, softcap] : forms_of_crossing())
    to.add<ops::CrossAttentionGrad>("cross_attention_grad" + name,
                                    {.dout = cross_queries(),
                                     .out = cross_queries(),
                                     .lse = heads::lse(),
                                     .q = cross_queries(),
                                     .kv = cross_keys(),
                                     .kv_begin = begin,
                                     .kv_end = end},
                                    crossing(softcap));
  to.time<ops::CrossAttentionGrad>(
      {.dout = timed_rows(),
       .out = timed_rows(),
       .lse = f32({kTimedTokens / kTimedLength, heads::kTimedHeads, kTimedLength}),
       .q = timed_rows(),
       .kv = timed_cross_keys()},
      kTimedCrossing);
}

template <>
void cases<ops::CachedCrossAttention>(Cases& to) {
  const Operand cache = act({7, 12, heads::kKv});
  to.add<ops::CachedCrossAttention>("cached_cross_attention",
                                    {.q = cross_queries(),
                                     .keys = cache,
                                     .values = cache,
                                     .slot = i32_of({4, 6, 0, 1}),
                                     .encoder_end = i32_of({12, 0, 7, 1})},
                                    crossing());
  to.untimed<ops::CachedCrossAttention>(kText);
}

template <>
void cases<ops::StoreCross>(Cases& to) {
  const Operand cache = act({7, 14, heads::kKv});
  to.add<ops::StoreCross>("store_cross",
                          {.kv = act({heads::kRows, 2 * heads::kKv}, {heads::kKv, heads::kKv}),
                           .keys = cache,
                           .values = cache,
                           .slot = i32_of({4, 1})},
                          {}, {.updates = {{"keys", "keys"}, {"values", "values"}}});
  to.untimed<ops::StoreCross>(kText);
}

template <>
void cases<ops::DocumentEnds>(Cases& to) {
  const Operand key_begins = i32_by(heads::kSequences * kEncoderLength,
                                    [](int64_t j) { return j % kEncoderLength >= 3 ? 3.0 : 0.0; });
  to.add<ops::DocumentEnds>("document_ends", {.q_begin = heads::cross_begin(), .k_begin = key_begins},
                            {heads::kLength, kEncoderLength});
  to.time<ops::DocumentEnds>({.q_begin = zeros({kTimedTokens}, DType::kI32),
                              .k_begin = zeros({kTimedTokens / kTimedLength * kTimedSource}, DType::kI32)},
                             {kTimedLength, kTimedSource});
}

}  // namespace strata::device
