#include "op_cases.h"

#include <cstring>
#include <tuple>

#include "graph/sum.h"
#include "kernels/cpu/optimizer.h"
#include "ops/clamp.h"
#include "ops/ops.h"
#include "optim/adamw.h"

namespace strata::ops {
namespace {

using graph::Attrs;

constexpr int64_t kRows = 24;  // four sequences of six
constexpr int64_t kLength = 6;
constexpr int64_t kSource = 10;  // keys of another sequence, for each of the four
constexpr int64_t kHeadDim = 8;
constexpr int64_t kQ = 64, kKv = 32;  // eight query heads, four of keys and values
constexpr int64_t kQkv = kQ + 2 * kKv;

Operand f32(Shape shape, std::vector<int64_t> segments = {}) {
  return {.shape = shape, .segments = std::move(segments)};
}
Operand i32(int64_t n, int64_t below) {
  return {.dtype = DType::kI32, .shape = {n}, .content = [below](int64_t i) {
            return static_cast<double>(i * 7 % below);
          }};
}
Operand i32_of(std::vector<int64_t> values) {
  return {.dtype = DType::kI32,
          .shape = {static_cast<int64_t>(values.size())},
          .content = [values](int64_t i) { return static_cast<double>(values[static_cast<size_t>(i)]); }};
}
Operand positive(Shape shape, std::vector<int64_t> segments = {}) {
  return {.shape = shape, .segments = std::move(segments), .content = [](int64_t i) {
            return 0.5 + 0.1 * static_cast<double>(i % 7);
          }};
}
Operand positions() {
  return {.dtype = DType::kI32, .shape = {kRows}, .content = [](int64_t i) {
            return static_cast<double>(i % kLength);
          }};
}
Operand kv_begin() {
  return {.dtype = DType::kI32, .shape = {kRows}, .content = [](int64_t i) {
            return i % kLength >= 4 ? 4.0 : 0.0;  // a document boundary inside each sequence
          }};
}
// Of the encoder: each sequence has the documents [0, 4) and [4, 6).
Operand kv_end() {
  return {.dtype = DType::kI32, .shape = {kRows}, .content = [](int64_t i) {
            return i % kLength >= 4 ? 6.0 : 4.0;
          }};
}
// Which document of its source, of [0, 3) and [3, 10), a row reads: the first, the second, or none.
Operand source_of() {
  return {.dtype = DType::kI32, .shape = {kRows}, .content = [](int64_t i) {
            return i % kLength >= 4 ? -1.0 : i % kLength >= 2 ? 3.0 : 0.0;
          }};
}
Operand source_end() {
  return {.dtype = DType::kI32, .shape = {kRows}, .content = [](int64_t i) {
            return i % kLength >= 4 ? 0.0 : i % kLength >= 2 ? 10.0 : 3.0;
          }};
}
Operand source_begin() {
  return {.dtype = DType::kI32, .shape = {kSource * kRows / kLength}, .content = [](int64_t j) {
            return j % kSource >= 3 ? 3.0 : 0.0;
          }};
}
Operand absent() {
  Operand operand;
  operand.absent = true;
  return operand;
}

// Bytes as a tensor of them.
template <typename T>
Operand bytes_of(const T& object, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  std::memcpy(bytes.data(), &object, sizeof object);
  return {.dtype = DType::kU8, .shape = {size}, .content = [bytes](int64_t i) {
            return static_cast<double>(static_cast<uint8_t>(bytes[static_cast<size_t>(i)]));
          }};
}
Operand bf16(Shape shape) {
  return {.dtype = DType::kBF16, .shape = shape};
}
const cpu::AdamWScalars kScalars{.lr = 0.1f,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8f,
                                 .bias_correction1 = 0.19f,
                                 .bias_correction2 = 0.0975f,
                                 .grad_scale = 0.25f,
                                 .skip = 0};

const Attrs kNorm{{"eps", 1e-5}, {"weight_offset", 0.0}};
const Attrs kOffsetNorm{{"eps", 1e-5}, {"weight_offset", 1.0}};
Attrs attention_attrs(int64_t window, double softcap) {
  return {{"head_dim", kHeadDim}, {"sequence_length", kLength}, {"scale", 0.3},           {"window", window},
          {"softcap", softcap},   {"causal", int64_t{1}},       {"bias_zero", int64_t{0}}};
}
const Attrs kAttentionAttrs = attention_attrs(0, 0);
Attrs biased_attrs(bool causal, int64_t zero) {
  Attrs attrs = attention_attrs(0, 0);
  attrs.set("causal", int64_t{causal});
  attrs.set("bias_zero", zero);
  return attrs;
}
Attrs cross_attrs(double softcap) {
  return {{"head_dim", kHeadDim},
          {"sequence_length", kLength},
          {"source_length", kSource},
          {"scale", 0.3},
          {"softcap", softcap}};
}
Attrs relative_attrs(bool bidirectional) {
  return {{"max_distance", int64_t{20}},
          {"bidirectional", int64_t{bidirectional}},
          {"first", int64_t{-30}},
          {"last", int64_t{9}},
          {"buckets", int64_t{8}}};
}
const Attrs kRopeAttrs{{"head_dim", kHeadDim}, {"inverse", int64_t{0}}};

// Attention with a bias, without a causal order, and to another sequence.
void add_encoder_cases(std::vector<OpCase>& cases) {
  const std::vector<int64_t> qkv{kQ, kKv, kKv}, kv{kKv, kKv};
  constexpr int64_t kHeads = kQ / kHeadDim, kSequences = kRows / kLength;
  const Operand lse = {.shape = {kSequences, kHeads, kLength},
                       .content = [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); }};
  const auto bias = [](int64_t width) { return f32({kHeads, width}); };
  struct Form {
    std::string name;
    Operand begin, end, bias;
    Attrs attrs;
  };
  for (const Form& form : {Form{"_biased", kv_begin(), absent(), bias(8), biased_attrs(true, 6)},
                           Form{"_encoder", kv_begin(), kv_end(), absent(), biased_attrs(false, 0)},
                           Form{"_whole_encoder", absent(), absent(), bias(11), biased_attrs(false, 5)},
                           Form{"_biased_encoder", kv_begin(), kv_end(), bias(14), biased_attrs(false, 7)}}) {
    cases.push_back({"attention" + form.name,
                     &kAttention,
                     {f32({kRows, kQkv}, qkv), form.begin, form.end, form.bias},
                     form.attrs});
    cases.push_back(
        {"attention_grad" + form.name,
         &kAttentionGrad,
         {f32({kRows, kQ}), f32({kRows, kQ}), lse, f32({kRows, kQkv}, qkv), form.begin, form.end, form.bias},
         form.attrs});
  }
  cases.push_back({"cached_attention_biased",
                   &kCachedAttention,
                   {f32({kRows, kQkv}, qkv), f32({7, 12, kKv}), f32({7, 12, kKv}), i32_of({3, 0, 6, 5}),
                    i32_of({4, 6, 0, 1}), bias(12)},
                   biased_attrs(true, 11),
                   {-1, 1, 2}});
  const Operand q = f32({kRows, kQ}), keys = f32({kSequences * kSource, 2 * kKv}, kv);
  for (const auto& [name, begin, end, softcap] :
       std::initializer_list<std::tuple<std::string, Operand, Operand, double>>{
           {"", absent(), absent(), 0},
           {"_documents", source_of(), source_end(), 0},
           {"_softcap", source_of(), source_end(), 0.7}}) {
    cases.push_back(
        {"cross_attention" + name, &kCrossAttention, {q, keys, begin, end}, cross_attrs(softcap)});
    cases.push_back({"cross_attention_grad" + name,
                     &kCrossAttentionGrad,
                     {q, f32({kRows, kQ}), lse, q, keys, begin, end},
                     cross_attrs(softcap)});
  }
  cases.push_back({"cached_cross_attention",
                   &kCachedCrossAttention,
                   {q, f32({7, 12, kKv}), f32({7, 12, kKv}), i32_of({4, 6, 0, 1}), i32_of({12, 0, 7, 1})},
                   cross_attrs(0)});
  cases.push_back({"store_cross",
                   &kStoreCross,
                   {f32({kRows, 2 * kKv}, kv), f32({7, 14, kKv}), f32({7, 14, kKv}), i32_of({4, 1})},
                   {},
                   {1, 2}});
  cases.push_back({"document_ends",
                   &kDocumentEnds,
                   {source_of(), source_begin()},
                   {{"sequence_length", kLength}, {"source_length", kSource}}});
  for (const bool both : {false, true}) {
    const std::string text = both ? "_bidirectional" : "";
    cases.push_back({"relative_bias" + text, &kRelativeBias, {f32({8, kHeads})}, relative_attrs(both)});
    cases.push_back(
        {"relative_bias_grad" + text, &kRelativeBiasGrad, {f32({kHeads, 40})}, relative_attrs(both)});
  }
}

std::vector<OpCase> make_cases() {
  const std::vector<int64_t> parts{kQ, kKv, kKv};
  const std::vector<int64_t> gate_up{20, 20};
  std::vector<OpCase> cases{
      {"add", &graph::kAdd, {f32({kRows, 20}), f32({kRows, 20})}, {}},
      {"embedding",
       &kEmbedding,
       {i32(kRows, 13), f32({13, 20}), absent(), absent()},
       {{"bf16", int64_t{0}}, {"scale", 2.5}, {"padding_id", int64_t{-1}}}},
      {"embedding_positions",
       &kEmbedding,
       {i32(kRows, 13), f32({13, 20}), positions(), f32({kLength, 20})},
       {{"bf16", int64_t{0}}, {"scale", 2.5}, {"padding_id", int64_t{-1}}}},
      {"embedding_grad",
       &kEmbeddingGrad,
       {f32({kRows, 20}), i32(kRows, 13)},
       {{"rows", int64_t{13}}, {"scale", 2.5}, {"padding_id", int64_t{-1}}}},
      {"embedding_grad_padding",
       &kEmbeddingGrad,
       {f32({kRows, 20}), i32(kRows, 13)},
       {{"rows", int64_t{13}}, {"scale", 1.0}, {"padding_id", int64_t{7}}}},
      {"linear", &kLinear, {f32({kRows, 20}), f32({12, 20}), absent()}, {{"f32_output", int64_t{0}}}},
      {"linear_bias", &kLinear, {f32({kRows, 20}), f32({12, 20}), f32({12})}, {{"f32_output", int64_t{0}}}},
      {"linear_grad_input", &kLinearGradInput, {f32({kRows, 12}), f32({12, 20})}, {}},
      {"linear_grad_weight", &kLinearGradWeight, {f32({kRows, 12}), f32({kRows, 20})}, {}},
      {"column_sums", &kColumnSums, {f32({kRows, 12})}, {}},
      {"rms_norm", &kRmsNorm, {f32({kRows, 20}), f32({20}), absent()}, kNorm},
      {"rms_norm_residual", &kRmsNorm, {f32({kRows, 20}), f32({20}), f32({kRows, 20})}, kNorm},
      {"rms_norm_grad_input",
       &kRmsNormGradInput,
       {f32({kRows, 20}), f32({kRows, 20}), positive({kRows}), f32({20}), f32({kRows, 20})},
       kNorm},
      {"rms_norm_grad_weight",
       &kRmsNormGradWeight,
       {f32({kRows, 20}), f32({kRows, 20}), positive({kRows})},
       kNorm},
      {"layer_norm", &kLayerNorm, {f32({kRows, 20}), f32({20}), f32({20}), absent()}, kNorm},
      {"layer_norm_residual", &kLayerNorm, {f32({kRows, 20}), f32({20}), f32({20}), f32({kRows, 20})}, kNorm},
      {"layer_norm_grad_input",
       &kLayerNormGradInput,
       {f32({kRows, 20}), f32({kRows, 20}), f32({kRows}), positive({kRows}), f32({20}), f32({kRows, 20})},
       kNorm},
      {"layer_norm_grad_weight",
       &kLayerNormGradWeight,
       {f32({kRows, 20}), f32({kRows, 20}), f32({kRows}), positive({kRows})},
       kNorm},
      {"rope", &kRope, {f32({kRows, kQkv}, parts), f32({kLength, kHeadDim / 2, 2}), positions()}, kRopeAttrs},
      {"attention",
       &kAttention,
       {f32({kRows, kQkv}, parts), kv_begin(), absent(), absent()},
       kAttentionAttrs},
      {"attention_plain",
       &kAttention,
       {f32({kRows, kQkv}, parts), absent(), absent(), absent()},
       kAttentionAttrs},
      {"attention_grad",
       &kAttentionGrad,
       {f32({kRows, kQ}), f32({kRows, kQ}), positive({kRows / kLength, kQ / kHeadDim, kLength}),
        f32({kRows, kQkv}, parts), kv_begin(), absent(), absent()},
       kAttentionAttrs},
      {"cached_attention",
       &kCachedAttention,
       {f32({kRows, kQkv}, parts), f32({7, 12, kKv}), f32({7, 12, kKv}), i32_of({3, 0, 6, 5}),
        i32_of({4, 6, 0, 1}), absent()},
       kAttentionAttrs,
       {-1, 1, 2}},
      {"cached_attention_first_rows",
       &kCachedAttention,
       {f32({kRows, kQkv}, parts), f32({kRows / kLength, kLength, kKv}), f32({kRows / kLength, kLength, kKv}),
        i32_of({0, 0, 0, 0}), i32_of({0, 1, 2, 3}), absent()},
       kAttentionAttrs,
       {-1, 1, 2}},
      {.name = "rope_table",
       .op = &kRopeTable,
       .inputs = {},
       .attrs = {{"positions", int64_t{9}},
                 {"frequencies", std::vector<double>{1.0, 0.1, 0.01, 0.001}},
                 {"magnitude", 1.1}},
       .replicated_only = true},
      // Where the processor multiplies bf16 these go through pack_weight: a shard is packed by itself.
      {.name = "linear_bf16",
       .op = &kLinear,
       .inputs = {bf16({kRows, 64}), f32({32, 64}), absent()},
       .attrs = {{"f32_output", int64_t{0}}},
       .tolerance = 3e-2},
      {.name = "linear_grad_input_bf16",
       .op = &kLinearGradInput,
       .inputs = {bf16({kRows, 32}), f32({32, 64})},
       .attrs = {},
       .tolerance = 3e-2},
      {"adamw",
       &optim::kAdamW,
       {f32({12, 20}), f32({12, 20}), positive({12, 20}), f32({12, 20}),
        bytes_of(kScalars, optim::kScalarBytes)},
       {{"weight_decay", 0.1}, {"lr_scale", 0.5}},
       {0, 1, 2}},
      // A bias of q, k and v: a shard takes its share of each of the three parts.
      {"adamw_parts",
       &optim::kAdamW,
       {f32({96}, {48, 24, 24}), f32({96}, {48, 24, 24}), positive({96}, {48, 24, 24}),
        f32({96}, {48, 24, 24}), bytes_of(kScalars, optim::kScalarBytes)},
       {{"weight_decay", 0.1},
        {"lr_scale", 0.5},
        {"part_rows", std::vector<double>{48, 24, 24}},
        {"part_scales", std::vector<double>{0.25, 1, 4}}},
       {0, 1, 2}},
      {"clamp", &kClamp, {f32({kRows, 20}, {12, 4, 4})}, {{"limit", 0.6}}},
      {"clamp_grad",
       &kClampGrad,
       {f32({kRows, 20}, {12, 4, 4}), f32({kRows, 20}, {12, 4, 4})},
       {{"limit", 0.6}}},
      {"softcap", &kSoftcap, {{.shape = {kRows, 20}, .always_f32 = true}}, {{"softcap", 1.5}}},
      {"scale", &kScale, {f32({kRows, 20})}, {{"factor", -0.3}}},
      {"add_row", &kAddRow, {f32({kRows, 20}), f32({3, 20})}, {{"row", int64_t{1}}}},
      {"add_row_grad", &kAddRowGrad, {f32({kRows, 20})}, {{"rows", int64_t{3}}, {"row", int64_t{2}}}},
      {"linear_cross_entropy_bias",
       &kLinearCrossEntropy,
       {f32({kRows, 20}), f32({13, 20}), i32(kRows, 13), f32({13})},
       {{"softcap", 0.0}}},
      {"linear_cross_entropy_train_bias",
       &kLinearCrossEntropyTrain,
       {f32({kRows, 20}), f32({13, 20}), absent(), i32(kRows, 13), f32({13})},
       {{"softcap", 0.0}}},
      {"take_row", &kTakeRow, {f32({kRows, 20}), i32(1, 5)}, {}},
      {"sum_of_squares", &optim::kSumOfSquares, {f32({12, 20})}, {}},
  };
  for (const auto& [name, softcap] :
       std::initializer_list<std::pair<const char*, double>>{{"", 0}, {"_softcap", 1.5}}) {
    const std::string text = name;
    const Attrs attrs{{"softcap", softcap}};
    cases.push_back({"linear_cross_entropy" + text,
                     &kLinearCrossEntropy,
                     {f32({kRows, 20}), f32({13, 20}), i32(kRows, 13), absent()},
                     attrs});
    cases.push_back({"linear_cross_entropy_train" + text,
                     &kLinearCrossEntropyTrain,
                     {f32({kRows, 20}), f32({13, 20}), absent(), i32(kRows, 13), absent()},
                     attrs});
  }
  for (const auto& [name, attrs] :
       std::initializer_list<std::pair<const char*, Attrs>>{{"window", attention_attrs(3, 0)},
                                                            {"softcap", attention_attrs(0, 0.7)},
                                                            {"both", attention_attrs(2, 0.7)}}) {
    const std::string text = name;
    cases.push_back({"attention_" + text,
                     &kAttention,
                     {f32({kRows, kQkv}, parts), kv_begin(), absent(), absent()},
                     attrs});
    cases.push_back({"attention_grad_" + text,
                     &kAttentionGrad,
                     {f32({kRows, kQ}), f32({kRows, kQ}), positive({kRows / kLength, kQ / kHeadDim, kLength}),
                      f32({kRows, kQkv}, parts), kv_begin(), absent(), absent()},
                     attrs});
    cases.push_back({"cached_attention_" + text,
                     &kCachedAttention,
                     {f32({kRows, kQkv}, parts), f32({7, 12, kKv}), f32({7, 12, kKv}), i32_of({3, 0, 6, 5}),
                      i32_of({4, 6, 0, 1}), absent()},
                     attrs,
                     {-1, 1, 2}});
  }
  for (const bool head : {true, false}) {
    const int64_t q_width = head ? kHeadDim : kQ, k_width = head ? kHeadDim : kKv;
    const int64_t groups = (kQ / q_width) + (kKv / k_width);
    const std::string text = head ? "_head" : "_projection";
    Attrs weights = kOffsetNorm;
    weights.set("q_width", q_width);
    weights.set("k_width", k_width);
    const Operand rstd = {.shape = {kRows, groups},
                          .segments = {kQ / q_width, kKv / k_width},
                          .content = [](int64_t i) { return 0.5 + 0.1 * static_cast<double>(i % 7); },
                          .always_f32 = true};
    cases.push_back({"qk_norm" + text,
                     &kQkNorm,
                     {f32({kRows, kQkv}, parts), f32({q_width}), f32({k_width})},
                     kOffsetNorm});
    cases.push_back(
        {"qk_norm_grad_input" + text,
         &kQkNormGradInput,
         {f32({kRows, kQkv}, parts), f32({kRows, kQkv}, parts), rstd, f32({q_width}), f32({k_width})},
         kOffsetNorm});
    cases.push_back({"qk_norm_grad_weight" + text,
                     &kQkNormGradWeight,
                     {f32({kRows, kQkv}, parts), f32({kRows, kQkv}, parts), rstd},
                     weights});
  }
  cases.push_back({"rms_norm_offset", &kRmsNorm, {f32({kRows, 20}), f32({20}), absent()}, kOffsetNorm});
  cases.push_back({"rms_norm_grad_input_offset",
                   &kRmsNormGradInput,
                   {f32({kRows, 20}), f32({kRows, 20}), positive({kRows}), f32({20}), f32({kRows, 20})},
                   kOffsetNorm});
  cases.push_back({.name = "constant",
                   .op = &kConstant,
                   .inputs = {},
                   .attrs = {{"elements", int64_t{9}}, {"number", 1.0}},
                   .replicated_only = true});
  for (const auto& [name, kind] :
       std::initializer_list<std::pair<const char*, ActivationKind>>{{"silu", ActivationKind::kSilu},
                                                                     {"gelu_tanh", ActivationKind::kGeluTanh},
                                                                     {"gelu_erf", ActivationKind::kGeluErf},
                                                                     {"relu", ActivationKind::kRelu}}) {
    const Attrs attrs{{"kind", static_cast<int64_t>(kind)}};
    const std::string text = name;
    cases.push_back({text + "_gated", &kGated, {f32({kRows, 40}, gate_up)}, attrs});
    cases.push_back(
        {text + "_gated_grad", &kGatedGrad, {f32({kRows, 20}), f32({kRows, 40}, gate_up)}, attrs});
    cases.push_back({text, &kActivation, {f32({kRows, 20})}, attrs});
    cases.push_back({text + "_grad", &kActivationGrad, {f32({kRows, 20}), f32({kRows, 20})}, attrs});
  }
  add_encoder_cases(cases);
  return cases;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = make_cases();
  return cases;
}

}  // namespace strata::ops
