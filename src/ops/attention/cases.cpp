#include "ops/cases.h"

#include "ops/attention/attention.h"
#include "ops/attention/case_operands.h"

namespace strata::device {

using namespace op_rows;

namespace {

ops::AttentionAttrs attending(int64_t window = 0, double softcap = 0) {
  return {.head_dim = heads::kHeadDim,
          .sequence_length = heads::kLength,
          .scale = 0.3,
          .window = window,
          .softcap = softcap};
}
ops::AttentionAttrs attending_biased(bool causal, int64_t zero) {
  ops::AttentionAttrs attrs = attending();
  attrs.causal = causal;
  attrs.bias_zero = zero;
  return attrs;
}
ops::AttentionAttrs attending_in_chunks(int64_t size) {
  ops::AttentionAttrs attrs = attending(size);
  attrs.chunked = true;
  return attrs;
}

// A case of the op and of its gradient, which takes no sinks.
struct Attending {
  std::string name;
  Operand begin, end, bias;
  ops::AttentionAttrs attrs;
  Operand sinks = absent();
  Operand qkv = heads::qkv();

  int64_t heads() const { return qkv.segments[0] / attrs.head_dim; }
  // Placements cut key and value heads.
  bool is_undivided() const { return qkv.segments[1] == attrs.head_dim; }
};
// Values that are narrower or wider than keys; key and value heads are half of the query heads.
Attending attending_values(std::string name, int64_t head_dim, int64_t value_dim, int64_t heads = 8) {
  const int64_t q = heads * head_dim, k = q / 2, v = heads / 2 * value_dim;
  ops::AttentionAttrs attrs = attending();
  attrs.head_dim = head_dim;
  attrs.value_dim = value_dim;
  return {std::move(name),
          heads::kv_begin(),
          absent(),
          absent(),
          attrs,
          absent(),
          act({heads::kRows, q + k + v}, {q, k, v})};
}
std::vector<Attending> forms_of_attention() {
  const auto bias = [](int64_t width) { return f32({heads::kHeads, width}); };
  const Operand begin = heads::kv_begin(), end = heads::kv_end(), none = absent();
  return {{"", begin, none, none, attending()},
          {"_plain", none, none, none, attending()},
          {"_window", begin, none, none, attending(3)},
          {"_softcap", begin, none, none, attending(0, 0.7)},
          {"_both", begin, none, none, attending(2, 0.7)},
          {"_biased", begin, none, bias(8), attending_biased(true, 6)},
          {"_encoder", begin, end, none, attending_biased(false, 0)},
          {"_whole_encoder", none, none, bias(11), attending_biased(false, 5)},
          {"_biased_encoder", begin, end, bias(14), attending_biased(false, 7)},
          {"_sinks", begin, none, none, attending(), heads::sinks()},
          {"_sinks_window", none, none, none, attending(3), heads::sinks()},
          attending_values("_narrow_values", 16, 8),
          attending_values("_wide_values", 8, 21),
          attending_values("_wide_heads", 264, 260, 2)};
}

struct TimedAttending {
  Operand qkv, begin;
  ops::AttentionAttrs attrs;

  Operand lse() const {
    const int64_t length = attrs.sequence_length;
    return f32({kTimedTokens / length, heads::kTimedHeads, length});
  }
};
std::vector<TimedAttending> timed_attention() {
  std::vector<TimedAttending> timed;
  for (const int64_t length : {256, 512, 1024})
    timed.push_back({timed_qkv(),
                     zeros({kTimedTokens}, DType::kI32),
                     {.head_dim = heads::kTimedHeadDim, .sequence_length = length, .scale = 0.125}});
  // Latent attention: heads of 64 + 32 and values of 64.
  constexpr int64_t kWide = heads::kTimedHeadDim + 32, kQueries = heads::kTimedHeads * kWide;
  timed.push_back(
      {timed_rows(2 * kQueries + kTimedWidth, {kQueries, kQueries, kTimedWidth}),
       absent(),
       {.head_dim = kWide, .sequence_length = 512, .scale = 0.125, .value_dim = heads::kTimedHeadDim}});
  return timed;
}

}  // namespace

template <>
void cases<ops::Attention>(Cases& to) {
  for (const Attending& form : forms_of_attention())
    to.add<ops::Attention>(
        "attention" + form.name,
        {.qkv = form.qkv, .kv_begin = form.begin, .kv_end = form.end, .bias = form.bias, .sinks = form.sinks},
        form.attrs, {.ragged = form.is_undivided()});
  // What ranks find is neither shards nor terms of a sum.
  for (Attending form : forms_of_attention()) {
    form.attrs.greatest_parts = 1;
    to.add<ops::Attention>(
        "attention_greatest" + form.name,
        {.qkv = form.qkv, .kv_begin = form.begin, .kv_end = form.end, .bias = form.bias, .sinks = form.sinks},
        form.attrs, {.replicated_only = true, .ragged = true});
  }
  for (const auto& [qkv, begin, attrs] : timed_attention())
    to.time<ops::Attention>({.qkv = qkv, .kv_begin = begin}, attrs);
}

template <>
void cases<ops::AttentionGrad>(Cases& to) {
  for (const Attending& form : forms_of_attention()) {
    if (!form.sinks.absent) continue;
    const Operand out = act({heads::kRows, form.heads() * form.attrs.size_of_value()});
    to.add<ops::AttentionGrad>("attention_grad" + form.name,
                               {.dout = out,
                                .out = out,
                                .lse = heads::lse(form.heads()),
                                .qkv = form.qkv,
                                .kv_begin = form.begin,
                                .kv_end = form.end,
                                .bias = form.bias},
                               form.attrs, {.ragged = form.is_undivided()});
  }
  for (const TimedAttending& timed : timed_attention())
    to.time<ops::AttentionGrad>({.dout = timed_rows(),
                                 .out = timed_rows(),
                                 .lse = timed.lse(),
                                 .qkv = timed.qkv,
                                 .kv_begin = timed.begin},
                                timed.attrs);
}

template <>
void cases<ops::CachedAttention>(Cases& to) {
  const auto add = [&](const std::string& name, const Operand& cache, const std::vector<int64_t>& positions,
                       const std::vector<int64_t>& slots, const ops::AttentionAttrs& attrs,
                       const Operand& bias = absent(), const Operand& sinks = absent()) {
    to.add<ops::CachedAttention>("cached_attention" + name,
                                 {.qkv = heads::qkv(),
                                  .keys = cache,
                                  .values = cache,
                                  .position = i32_of(positions),
                                  .slot = i32_of(slots),
                                  .bias = bias,
                                  .sinks = sinks},
                                 attrs, {.updates = {{"keys", "keys"}, {"values", "values"}}});
  };
  const Operand cache = act({7, 12, heads::kKv});
  const std::vector<int64_t> positions{3, 0, 6, 5}, slots{4, 6, 0, 1};
  add("", cache, positions, slots, attending());
  add("_window", cache, positions, slots, attending(3));
  add("_softcap", cache, positions, slots, attending(0, 0.7));
  add("_both", cache, positions, slots, attending(2, 0.7));
  add("_biased", cache, positions, slots, attending_biased(true, 11), f32({heads::kHeads, 12}));
  add("_sinks", cache, positions, slots, attending(3), absent(), heads::sinks());
  add("_chunked", cache, positions, slots, attending_in_chunks(4));
  add("_first_rows", act({heads::kSequences, heads::kLength, heads::kKv}), {0, 0, 0, 0}, {0, 1, 2, 3},
      attending());
  to.untimed<ops::CachedAttention>(kText);
}

template <>
void cases<ops::SinkGrad>(Cases& to) {
  const Operand rows = act({heads::kRows, heads::kQ});
  to.add<ops::SinkGrad>("sink_grad",
                        {.dout = rows, .out = rows, .lse = heads::lse(), .sinks = heads::sinks()},
                        {heads::kHeadDim, heads::kLength});
  to.untimed<ops::SinkGrad>(kPass);
}

}  // namespace strata::device
