// Rows of attention and of what stands around it.
#include <fmt/core.h>

#include <tuple>

#include "ops/case_operands.h"
#include "ops/ops.h"
#include "ops/take_part.h"
#include "ops/temper.h"

namespace strata::device::op_rows {
namespace {

constexpr int64_t kRows = 24;  // four sequences of six
constexpr int64_t kLength = 6;
constexpr int64_t kSequences = kRows / kLength;
constexpr int64_t kEncoderLength = 10;  // keys of another sequence, for each of the four
constexpr int64_t kHeadDim = 8;
constexpr int64_t kQ = 64, kKv = 32;  // eight query heads, four of keys and values
constexpr int64_t kQkv = kQ + 2 * kKv;
constexpr int64_t kHeads = kQ / kHeadDim;

Operand qkv() {
  return act({kRows, kQkv}, {kQ, kKv, kKv});
}
Operand lse() {
  return f32_of({kSequences, kHeads, kLength},
                [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); });
}
Operand positions() {
  return i32_by(kRows, [](int64_t i) { return static_cast<double>(i % kLength); });
}
// Some above all scores, some below.
Operand sinks() {
  return f32_of({kHeads}, [](int64_t head) { return 0.7 * static_cast<double>(head % 5) - 1; });
}
// A document boundary inside each sequence.
Operand kv_begin() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 4.0 : 0.0; });
}
// Of the encoder: each sequence has the documents [0, 4) and [4, 6).
Operand kv_end() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 6.0 : 4.0; });
}
// Which document of its encoder, of [0, 3) and [3, 10), a row reads: the first, the second, or none.
Operand cross_kv_begin() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? -1.0 : i % kLength >= 2 ? 3.0 : 0.0; });
}
Operand encoder_end() {
  return i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 0.0 : i % kLength >= 2 ? 10.0 : 3.0; });
}
Operand encoder_kv_begin() {
  return i32_by(kEncoderLength * kSequences, [](int64_t j) { return j % kEncoderLength >= 3 ? 3.0 : 0.0; });
}

ops::AttentionAttrs attention_attrs(int64_t window, double softcap) {
  return {
      .head_dim = kHeadDim, .sequence_length = kLength, .scale = 0.3, .window = window, .softcap = softcap};
}
ops::AttentionAttrs chunked_attrs(int64_t size) {
  ops::AttentionAttrs attrs = attention_attrs(size, 0);
  attrs.chunked = true;
  return attrs;
}
ops::AttentionAttrs biased_attrs(bool causal, int64_t zero) {
  ops::AttentionAttrs attrs = attention_attrs(0, 0);
  attrs.causal = causal;
  attrs.bias_zero = zero;
  return attrs;
}
ops::CrossAttentionAttrs cross_attrs(double softcap) {
  return {.head_dim = kHeadDim,
          .sequence_length = kLength,
          .scale = 0.3,
          .softcap = softcap,
          .encoder_length = kEncoderLength};
}
ops::RelativeBiasAttrs relative_attrs(bool bidirectional) {
  return {.max_distance = 20, .bidirectional = bidirectional, .first = -30, .last = 9, .buckets = 8};
}

void add_self_attention(std::vector<OpCase>& cases) {
  const auto bias = [](int64_t width) { return f32({kHeads, width}); };
  struct Form {
    std::string name;
    Operand begin, end, bias;
    ops::AttentionAttrs attrs;
    Operand sinks = absent();
  };
  for (const Form& form :
       {Form{"", kv_begin(), absent(), absent(), attention_attrs(0, 0)},
        Form{"_plain", absent(), absent(), absent(), attention_attrs(0, 0)},
        Form{"_window", kv_begin(), absent(), absent(), attention_attrs(3, 0)},
        Form{"_softcap", kv_begin(), absent(), absent(), attention_attrs(0, 0.7)},
        Form{"_both", kv_begin(), absent(), absent(), attention_attrs(2, 0.7)},
        Form{"_biased", kv_begin(), absent(), bias(8), biased_attrs(true, 6)},
        Form{"_encoder", kv_begin(), kv_end(), absent(), biased_attrs(false, 0)},
        Form{"_whole_encoder", absent(), absent(), bias(11), biased_attrs(false, 5)},
        Form{"_biased_encoder", kv_begin(), kv_end(), bias(14), biased_attrs(false, 7)},
        Form{"_sinks", kv_begin(), absent(), absent(), attention_attrs(0, 0), sinks()},
        Form{"_sinks_window", absent(), absent(), absent(), attention_attrs(3, 0), sinks()}}) {
    cases.push_back({"attention" + form.name,
                     &ops::kAttention,
                     {qkv(), form.begin, form.end, form.bias, form.sinks},
                     form.attrs});
    if (!form.sinks.absent) continue;
    cases.push_back({"attention_grad" + form.name,
                     &ops::kAttentionGrad,
                     {act({kRows, kQ}), act({kRows, kQ}), lse(), qkv(), form.begin, form.end, form.bias},
                     form.attrs});
  }
}

void add_sink_gradient(std::vector<OpCase>& cases) {
  cases.push_back({"sink_grad",
                   &ops::kSinkGrad,
                   {act({kRows, kQ}), act({kRows, kQ}), lse(), sinks()},
                   ops::SinkGradAttrs{kHeadDim, kLength}});
  // Of three ranks the middle one.
  const Operand rank = rank_at({{Axis::kContext, 1}});
  for (const int64_t ranks : {1, 3}) {
    const ops::TakePartAttrs attrs{.axis = Axis::kContext, .ranks = ranks};
    const std::string text = ranks > 1 ? "" : "_whole";
    cases.push_back({"take_part" + text, &ops::kTakePart, {f32({6}), rank}, attrs});
    cases.back().replicated_only = ranks > 1;
    cases.push_back({"take_part_grad" + text, &ops::kTakePartGrad, {f32({2}), rank}, attrs});
  }
}

void add_cached_attention(std::vector<OpCase>& cases) {
  const Operand cache = act({7, 12, kKv}), position = i32_of({3, 0, 6, 5}), slot = i32_of({4, 6, 0, 1});
  for (const auto& [name, bias, attrs, sink] :
       std::initializer_list<std::tuple<std::string, Operand, ops::AttentionAttrs, Operand>>{
           {"", absent(), attention_attrs(0, 0), absent()},
           {"_window", absent(), attention_attrs(3, 0), absent()},
           {"_softcap", absent(), attention_attrs(0, 0.7), absent()},
           {"_both", absent(), attention_attrs(2, 0.7), absent()},
           {"_biased", f32({kHeads, 12}), biased_attrs(true, 11), absent()},
           {"_sinks", absent(), attention_attrs(3, 0), sinks()},
           {"_chunked", absent(), chunked_attrs(4), absent()}}) {
    cases.push_back({"cached_attention" + name,
                     &ops::kCachedAttention,
                     {qkv(), cache, cache, position, slot, bias, sink},
                     attrs,
                     {-1, 1, 2}});
  }
  const Operand exact = act({kSequences, kLength, kKv});
  cases.push_back({"cached_attention_first_rows",
                   &ops::kCachedAttention,
                   {qkv(), exact, exact, i32_of({0, 0, 0, 0}), i32_of({0, 1, 2, 3}), absent(), absent()},
                   attention_attrs(0, 0),
                   {-1, 1, 2}});
}

void add_cross_attention(std::vector<OpCase>& cases) {
  const Operand q = act({kRows, kQ}), keys = act({kSequences * kEncoderLength, 2 * kKv}, {kKv, kKv});
  for (const auto& [name, begin, end, softcap] :
       std::initializer_list<std::tuple<std::string, Operand, Operand, double>>{
           {"", absent(), absent(), 0},
           {"_documents", cross_kv_begin(), encoder_end(), 0},
           {"_softcap", cross_kv_begin(), encoder_end(), 0.7}}) {
    cases.push_back(
        {"cross_attention" + name, &ops::kCrossAttention, {q, keys, begin, end}, cross_attrs(softcap)});
    cases.push_back({"cross_attention_grad" + name,
                     &ops::kCrossAttentionGrad,
                     {q, q, lse(), q, keys, begin, end},
                     cross_attrs(softcap)});
  }
  const Operand cache = act({7, 12, kKv}), room = act({7, 14, kKv});
  cases.push_back({"cached_cross_attention",
                   &ops::kCachedCrossAttention,
                   {q, cache, cache, i32_of({4, 6, 0, 1}), i32_of({12, 0, 7, 1})},
                   cross_attrs(0)});
  cases.push_back({"store_cross",
                   &ops::kStoreCross,
                   {act({kRows, 2 * kKv}, {kKv, kKv}), room, room, i32_of({4, 1})},
                   {},
                   {1, 2}});
  cases.push_back({"document_ends",
                   &ops::kDocumentEnds,
                   {cross_kv_begin(), encoder_kv_begin()},
                   ops::DocumentEndsAttrs{kLength, kEncoderLength}});
}

void add_around_attention(std::vector<OpCase>& cases) {
  cases.push_back({.name = "rope_table",
                   .op = &ops::kRopeTable,
                   .inputs = {},
                   .attrs = ops::RopeTableAttrs{9, {1.0, 0.1, 0.01, 0.001}, 1.1},
                   .replicated_only = true});
  for (const int64_t pairs : {kHeadDim / 2, kHeadDim / 4}) {
    for (const bool inverse : {false, true}) {
      cases.push_back({fmt::format("rope_{}_pairs{}", pairs, inverse ? "_inverse" : ""),
                       &ops::kRope,
                       {qkv(), constant(f32({kLength, pairs, 2})), positions()},
                       ops::RopeAttrs{kHeadDim, inverse}});
    }
  }
  cases.push_back({"rope_adjacent",
                   &ops::kRope,
                   {qkv(), constant(f32({kLength, kHeadDim / 2, 2})), positions()},
                   ops::RopeAttrs{.head_dim = kHeadDim, .adjacent = true}});
  cases.push_back({"temper", &ops::kTemper, {qkv(), positions()}, ops::TemperAttrs{2, 0.3}});
  for (const bool documents : {false, true}) {
    cases.push_back({documents ? "chunk_begins_of_documents" : "chunk_begins",
                     &ops::kChunkBegins,
                     {positions(), documents ? kv_begin() : absent()},
                     ops::ChunkAttrs{3}});
  }
  for (const bool both : {false, true}) {
    const std::string text = both ? "_bidirectional" : "";
    cases.push_back({"relative_bias" + text, &ops::kRelativeBias, {f32({8, kHeads})}, relative_attrs(both)});
    cases.push_back(
        {"relative_bias_grad" + text, &ops::kRelativeBiasGrad, {f32({kHeads, 40})}, relative_attrs(both)});
  }
  for (const bool head : {true, false}) {
    const int64_t q_width = head ? kHeadDim : kQ, k_width = head ? kHeadDim : kKv;
    const int64_t q_groups = kQ / q_width, k_groups = kKv / k_width;
    const std::string text = head ? "_head" : "_projection";
    const ops::QkNormAttrs attrs{.eps = 1e-5, .weight_offset = 1};
    ops::QkNormAttrs widths = attrs;
    widths.q_width = q_width;
    widths.k_width = k_width;
    const Operand rstd = positive({kRows, q_groups + k_groups}, {q_groups, k_groups});
    const Operand q_weight = f32({q_width}), k_weight = f32({k_width});
    cases.push_back({"qk_norm" + text, &ops::kQkNorm, {qkv(), q_weight, k_weight, absent()}, attrs});
    cases.push_back({"qk_norm_grad_input" + text,
                     &ops::kQkNormGradInput,
                     {qkv(), qkv(), rstd, q_weight, k_weight, absent()},
                     attrs});
    cases.push_back({"qk_norm_grad_weight" + text, &ops::kQkNormGradWeight, {qkv(), qkv(), rstd}, widths});
    if (head) continue;
    // Means over ranks, which no difference of these operands knows of.
    const Operand means = positive({kRows, 2});
    cases.push_back({.name = "qk_norm_over_ranks",
                     .op = &ops::kQkNorm,
                     .inputs = {qkv(), q_weight, k_weight, means},
                     .attrs = attrs,
                     .differentiable = {}});
    cases.push_back({"qk_norm_grad_input_over_ranks",
                     &ops::kQkNormGradInput,
                     {qkv(), qkv(), rstd, q_weight, k_weight, means},
                     attrs});
    cases.push_back({"qk_norm_grad_weight_over_ranks",
                     &ops::kQkNormGradWeight,
                     {qkv(), qkv(), positive({kRows, 2}, {1, 1})},
                     attrs});
    cases.push_back({"qk_means", &ops::kQkMeans, {qkv(), absent(), absent(), absent()}, widths});
    cases.push_back({"qk_means_of_products", &ops::kQkMeans, {qkv(), qkv(), q_weight, k_weight}, widths});
  }
  for (const int64_t ranks : {1, 2}) {
    const ops::ShareHeadsAttrs attrs{
        .axis = Axis::kTensor, .head_dim = kHeadDim, .copies = 4, .ranks = ranks};
    const int64_t own = kKv * attrs.copies / ranks;
    const std::string text = ranks == 1 ? "" : "_of_a_rank";
    const Operand rank = rank_at({{Axis::kTensor, 1}});
    cases.push_back({.name = "share_heads" + text,
                     .op = &ops::kShareHeads,
                     .inputs = {act({kRows, kQ}), act({kRows, 2 * kKv}, {kKv, kKv}), rank},
                     .attrs = attrs});
    cases.push_back({.name = "share_heads_grad" + text,
                     .op = &ops::kShareHeadsGrad,
                     .inputs = {act({kRows, kQ + 2 * own}, {kQ, own, own}), rank},
                     .attrs = attrs});
  }
}

}  // namespace

void add_attention_rows(std::vector<OpCase>& cases) {
  add_self_attention(cases);
  add_sink_gradient(cases);
  add_cached_attention(cases);
  add_cross_attention(cases);
  add_around_attention(cases);
}

}  // namespace strata::device::op_rows
