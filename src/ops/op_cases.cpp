#include "ops/op_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/case_operands.h"
#include "device/op_run.h"
#include "graph/loss_seed.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/ops.h"
#include "ops/predict.h"
#include "optim/optimizer.h"

namespace strata::device {
namespace op_rows {
namespace {

using graph::Attributes;

constexpr int64_t kRows = 24;

constexpr ops::RmsNormAttrs kRms{.eps = 1e-5};
constexpr ops::LayerNormAttrs kLayer{.eps = 1e-5};

// One set of sizes: `rows` tokens of `width` columns, `outputs` of a product.
struct Sizes {
  std::string name;
  int64_t rows, width, outputs;
  bool ragged;

  OpCase row(const char* op_name, const graph::OpDef& op, std::vector<Operand> inputs, Attributes attrs = {},
             std::vector<int> differentiable = {0}) const {
    return {.name = op_name + name,
            .op = &op,
            .inputs = std::move(inputs),
            .attrs = std::move(attrs),
            .ragged = ragged,
            .differentiable = std::move(differentiable)};
  }
  Operand x() const { return act({rows, width}); }
  Operand y() const { return act({rows, outputs}); }
};

void add_linear_rows(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand w = f32({s.outputs, s.width});
  cases.push_back(s.row("linear", ops::kLinear, {s.x(), w, absent()}, ops::LinearAttrs{}));
  cases.push_back(s.row("linear_bias", ops::kLinear, {s.x(), w, f32({s.outputs})}, ops::LinearAttrs{}));
  cases.push_back(
      s.row("linear_to_f32", ops::kLinear, {s.x(), w, absent()}, ops::LinearAttrs{.f32_output = true}));
  cases.push_back(s.row("linear_grad_input", ops::kLinearGradInput, {s.y(), w}));
  cases.push_back(s.row("linear_grad_weight", ops::kLinearGradWeight, {s.y(), s.x()}));
  cases.push_back(s.row("column_sums", ops::kColumnSums, {s.y()}));
}

void add_norm_rows(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand w = f32({s.width}), b = f32({s.width}), mean = f32({s.rows}), rstd = positive({s.rows});
  for (const auto& [name, attrs] : std::initializer_list<std::pair<std::string, ops::RmsNormAttrs>>{
           {"rms_norm", kRms}, {"rms_norm_offset", {.eps = 1e-5, .weight_offset = 1}}}) {
    cases.push_back(s.row(name.c_str(), ops::kRmsNorm, {s.x(), w, absent()}, attrs));
    cases.push_back(s.row((name + "_residual").c_str(), ops::kRmsNorm, {s.x(), w, s.x()}, attrs, {0, 2}));
    cases.push_back(
        s.row((name + "_grad_input").c_str(), ops::kRmsNormGradInput, {s.x(), s.x(), rstd, w, s.x()}, attrs));
  }
  cases.push_back(
      s.row("rms_norm_grad_input_alone", ops::kRmsNormGradInput, {s.x(), s.x(), rstd, w, absent()}, kRms));
  cases.push_back(s.row("rms_norm_grad_weight", ops::kRmsNormGradWeight, {s.x(), s.x(), rstd}, kRms));
  cases.push_back(s.row("layer_norm", ops::kLayerNorm, {s.x(), w, b, absent()}, kLayer));
  cases.push_back(s.row("layer_norm_residual", ops::kLayerNorm, {s.x(), w, b, s.x()}, kLayer, {0, 3}));
  cases.push_back(
      s.row("layer_norm_grad_input", ops::kLayerNormGradInput, {s.x(), s.x(), mean, rstd, w, s.x()}, kLayer));
  cases.push_back(s.row("layer_norm_grad_input_alone", ops::kLayerNormGradInput,
                        {s.x(), s.x(), mean, rstd, w, absent()}, kLayer));
  cases.push_back(
      s.row("layer_norm_grad_weight", ops::kLayerNormGradWeight, {s.x(), s.x(), mean, rstd}, kLayer));
}

void add_elementwise_rows(std::vector<OpCase>& cases, const Sizes& s) {
  cases.push_back(s.row("add", graph::kAdd, {s.x(), s.x()}));
  cases.push_back(s.row("scale", ops::kScale, {s.x()}, ops::ScaleAttrs{-0.3}));
  cases.push_back(s.row("add_row", ops::kAddRow, {s.x(), f32({3, s.width})}, ops::AddRowAttrs{1}));
  cases.push_back(s.row("add_row_of_one", ops::kAddRow, {s.x(), f32({s.width})}, ops::AddRowAttrs{}));
  cases.push_back(
      s.row("add_row_grad", ops::kAddRowGrad, {s.x()}, ops::AddRowGradAttrs{.rows = 3, .row = 2}));
  cases.push_back(s.row("softcap", ops::kSoftcap, {f32({s.rows, s.width})}, ops::SoftcapAttrs{1.5}));
  cases.push_back(s.row("take_row", ops::kTakeRow, {s.x(), i32_of({5})}));
  // Of the whole, which any other axis splits, and of a rank.
  const auto take = [](int dim, const std::vector<int64_t>& parts) {
    graph::ReshardAttrs attrs{.axis = Axis::kTensor, .from = {}, .to = graph::Placement::sharded(dim)};
    if (parts.empty()) return attrs;
    attrs.ranks = 2;
    attrs.cuts = {{.from = {}, .to = {parts, attrs.ranks, 0}}};
    return attrs;
  };
  const Operand rank = rank_at({{Axis::kTensor, 1}});
  cases.push_back(s.row("take_shard_whole", graph::kTakeShard, {s.x(), rank}, take(0, {})));
  // Of two sequences of six, the pieces of the second of three ranks.
  graph::ReshardAttrs pieces = take(0, {12});
  pieces.sequence = 6;
  pieces.ranks = 3;
  pieces.cuts = {{.from = {}, .to = {{12}, 3, 0, 6}}};
  cases.push_back(
      s.row("take_shard_of_sequences", graph::kTakeShard, {act({12, s.width}), rank}, pieces, {}));
  cases.back().replicated_only = true;
  cases.push_back(
      s.row("targets_ahead", ops::kTargetsAhead,
            {i32_by(24, [](int64_t i) { return i % 7 == 4 ? -1.0 : static_cast<double>(i); }),
             i32_by(24, [](int64_t i) { return i % 5 == 1 ? -1.0 : static_cast<double>(i + 1); })},
            ops::TargetsAheadAttrs{3}));
  for (const int dim : {0, 1}) {
    const std::vector<int64_t> parts = dim == 1 ? std::vector<int64_t>{8, 4} : std::vector<int64_t>{8};
    cases.push_back(s.row(fmt::format("take_shard_{}", dim).c_str(), graph::kTakeShard,
                          {act({8, 12}, dim == 1 ? parts : std::vector<int64_t>{}), rank}, take(dim, parts),
                          {}));
    cases.back().replicated_only = true;
  }
  for (const auto& [name, kind] :
       std::initializer_list<std::pair<std::string, ActivationKind>>{{"silu", ActivationKind::kSilu},
                                                                     {"gelu_tanh", ActivationKind::kGeluTanh},
                                                                     {"gelu_erf", ActivationKind::kGeluErf},
                                                                     {"relu", ActivationKind::kRelu}}) {
    const ops::ActivationAttrs attrs{kind};
    const std::vector<int64_t> gate_up{s.width, s.width};
    const Operand pairs = between_tenths({s.rows, 2 * s.width}, gate_up);
    cases.push_back(s.row((name + "_gated").c_str(), ops::kGated, {pairs}, attrs));
    cases.push_back(s.row((name + "_gated_grad").c_str(), ops::kGatedGrad,
                          {s.x(), act({s.rows, 2 * s.width}, gate_up)}, attrs));
    cases.push_back(s.row(name.c_str(), ops::kActivation, {between_tenths({s.rows, s.width})}, attrs));
    cases.push_back(s.row((name + "_grad").c_str(), ops::kActivationGrad, {s.x(), s.x()}, attrs));
  }
}

void add_embedding_rows(std::vector<OpCase>& cases, const Sizes& s) {
  const auto attrs = [](double scale, int64_t padding) {
    return ops::EmbeddingAttrs{.scale = scale, .padding_id = padding};
  };
  const auto grad_attrs = [](double scale, int64_t padding) {
    return ops::EmbeddingGradAttrs{.rows = 13, .scale = scale, .padding_id = padding};
  };
  const Operand tokens = i32(s.rows, 13), table = f32({13, s.width});
  cases.push_back(
      s.row("embedding", ops::kEmbedding, {tokens, table, absent(), absent(), absent()}, attrs(2.5, -1)));
  cases.push_back(s.row("embedding_positions", ops::kEmbedding,
                        {tokens, table, i32(s.rows, 6), f32({6, s.width}), absent()}, attrs(2.5, -1)));
  cases.push_back(
      s.row("embedding_grad", ops::kEmbeddingGrad, {s.x(), tokens, absent()}, grad_attrs(2.5, -1)));
  cases.push_back(
      s.row("embedding_grad_padding", ops::kEmbeddingGrad, {s.x(), tokens, absent()}, grad_attrs(1.0, 7)));
  // Four parts of a vocabulary, of which ranks have some; and two that do not begin with it.
  for (const auto& [name, count, begin] : {std::tuple{"_parts", 4, 0}, std::tuple{"_some_parts", 2, 7}}) {
    if (begin > 0 && !s.ragged) continue;
    std::vector<int64_t> starts;
    for (int64_t part = 0; part < count; ++part) starts.push_back(begin + 4 * part);
    const Operand ids = i32(s.rows, 16);
    cases.push_back(s.row(fmt::format("embedding{}", name).c_str(), ops::kEmbedding,
                          {ids, f32({4 * count, s.width}), absent(), absent(), i32_of(starts)},
                          attrs(2.5, -1)));
    const ops::EmbeddingGradAttrs of_parts{.rows = 16, .scale = 2.5, .padding_id = 9, .rows_of_part = 4};
    cases.push_back(s.row(fmt::format("embedding_grad{}", name).c_str(), ops::kEmbeddingGrad,
                          {s.x(), ids, i32_of(starts)}, of_parts));
  }
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A weight that is `parts` of a vocabulary of which the first begins at row `begin`; without begin it is all
// of it. Targets of the other parts too.
struct Vocabulary {
  std::string name;
  int64_t rows;  // of the weight
  std::optional<int64_t> begin;
  int64_t parts;
  int64_t whole;
  double softcap;
  bool bias;
};

Operand start_of(const Vocabulary& v) {
  if (!v.begin) return absent();
  std::vector<int64_t> starts;
  for (int64_t p = 0; p < v.parts; ++p) starts.push_back(*v.begin + p * v.rows / v.parts);
  return i32_of(starts);
}

// Statistics as logits of products of `s.width` terms may have them: greatest logits, sums of at least 1,
// targets below the greatest and in one of the parts.
Operand statistics_of(int64_t parts, const Sizes& s) {
  const int64_t tokens = s.rows;
  const double greatest = 0.8 * std::sqrt(static_cast<double>(s.width));
  return f32_of({parts, tokens, 3}, [parts, tokens, greatest](int64_t i) {
    const int64_t token = i / 3 % tokens, part = i / 3 / tokens;
    const double maximum = greatest + 0.1 * static_cast<double>((token * 5 + part * 3) % 11);
    if (i % 3 == 0) return maximum;
    if (i % 3 == 1) return 1 + 0.25 * static_cast<double>((token + part) % 9);
    return token % parts == part ? maximum - 0.125 * static_cast<double>(token % 4) : -kInfinity;
  });
}

// As the fused form's rows, with the statistics' gradients of any kind.
void add_split_loss_rows(std::vector<OpCase>& cases, const Sizes& s) {
  const std::vector<Vocabulary> all{{"", 13, {}, 1, 13, 0, false},
                                    {"_softcap", 13, {}, 1, 13, 1.5, false},
                                    {"_bias", 13, {}, 1, 13, 0, true},
                                    {"_parts", 16, 0, 4, 16, 0, true},
                                    {"_parts_softcap", 16, 0, 4, 16, 1.5, false}};
  // A shard that does not begin with the vocabulary cannot be cut further by its one part.
  const std::vector<Vocabulary> shard{{"_shard", 13, 13, 1, 39, 1.5, false},
                                      {"_shard_parts", 14, 13, 2, 39, 0, true},
                                      {"_last_shard", 13, 26, 1, 34, 0, true},
                                      {"_shard_of_padding", 13, 39, 1, 34, 1.5, false},
                                      {"_shard_parts_at_end", 14, 26, 2, 36, 1.5, false}};
  for (const auto* some : {&all, &shard}) {
    if (some == &shard && !s.ragged) continue;
    for (const Vocabulary& v : *some) {
      const Operand w = f32({v.rows, s.width}), bias = v.bias ? f32({v.rows}) : absent();
      const int64_t whole = v.whole;
      const Operand targets = i32_by(
          s.rows, [whole](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i * 7 % whole); });
      const Operand statistics = statistics_of(v.parts, s), given = f32({v.parts, s.rows, 3});
      const ops::CrossEntropyAttrs attrs{v.softcap, v.whole};
      // No differences of parts, since the logit of a target in another part is infinite, and none of ragged
      // rows: where two greatest logits come close the maximum has a bend.
      cases.push_back(s.row(("cross_entropy_statistics" + v.name).c_str(), ops::kCrossEntropyStatistics,
                            {s.x(), w, targets, bias, start_of(v)}, attrs,
                            v.begin || s.ragged ? std::vector<int>{} : std::vector<int>{0}));
      cases.push_back(s.row(("cross_entropy_grad_input" + v.name).c_str(), ops::kCrossEntropyGradInput,
                            {s.x(), w, same_as(1), targets, statistics, given, bias, start_of(v)}, attrs));
      cases.push_back(s.row(("cross_entropy_grad_weight" + v.name).c_str(), ops::kCrossEntropyGradWeight,
                            {s.x(), w, targets, statistics, given, bias, start_of(v)}, attrs));
      cases.push_back(s.row(("cross_entropy_grad" + v.name).c_str(), ops::kCrossEntropyGrad,
                            {s.x(), w, same_as(1), targets, statistics, given, bias, start_of(v)}, attrs));
    }
  }
  const Operand targets =
      i32_by(s.rows, [](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i * 7 % 13); });
  for (const int64_t parts : {1, 3}) {
    const std::string name = parts == 1 ? "" : "_parts";
    const Operand statistics = statistics_of(parts, s);
    cases.push_back(
        s.row(("cross_entropy_loss" + name).c_str(), ops::kCrossEntropyLoss, {statistics, targets}));
    cases.push_back(s.row(("cross_entropy_loss_grad" + name).c_str(), ops::kCrossEntropyLossGrad,
                          {statistics, targets, absent()}));
    cases.push_back(s.row(("cross_entropy_loss_grad_seed" + name).c_str(), ops::kCrossEntropyLossGrad,
                          {statistics, targets, f32_of({1}, [](int64_t) { return 0.375; })}));
  }
  OpCase sums = s.row("cross_entropy_loss_sums_only", ops::kCrossEntropyLoss, {statistics_of(1, s), targets});
  sums.left_out = {2, 3};
  cases.push_back(std::move(sums));
}

// Every third row has no target.
void add_loss_rows(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand w = f32({13, s.width});
  const Operand targets =
      i32_by(s.rows, [](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i * 7 % 13); });
  for (const auto& [name, bias, softcap] : std::initializer_list<std::tuple<std::string, Operand, double>>{
           {"", absent(), 0.0}, {"_softcap", absent(), 1.5}, {"_bias", f32({13}), 0.0}}) {
    const ops::LinearCrossEntropyAttrs attrs{softcap};
    cases.push_back(s.row(("linear_cross_entropy" + name).c_str(), ops::kLinearCrossEntropy,
                          {s.x(), w, targets, bias}, attrs));
    cases.push_back(s.row(("linear_cross_entropy_train" + name).c_str(), ops::kLinearCrossEntropyTrain,
                          {s.x(), w, same_as(1), targets, bias, absent()}, attrs));
    cases.push_back(s.row(("linear_cross_entropy_train_seed" + name).c_str(), ops::kLinearCrossEntropyTrain,
                          {s.x(), w, same_as(1), targets, bias, f32_of({1}, [](int64_t) { return 0.375; })},
                          attrs));
  }
  OpCase sums = cases[cases.size() - 3];
  sums.name += "_sums_only";
  sums.left_out = {2, 3};
  cases.push_back(std::move(sums));
  add_split_loss_rows(cases, s);
}

std::vector<OpCase> make_cases() {
  std::vector<OpCase> cases;
  for (const Sizes& sizes : {Sizes{"", kRows, 20, 12, false}, Sizes{"_ragged", 37, 71, 13, true},
                             Sizes{"_of_one_column", 9, 1, 1, true}}) {
    add_linear_rows(cases, sizes);
    add_norm_rows(cases, sizes);
    add_elementwise_rows(cases, sizes);
    add_embedding_rows(cases, sizes);
    add_loss_rows(cases, sizes);
  }
  // Where the processor multiplies bf16 these go through pack_weight: a shard is packed by itself.
  cases.push_back({.name = "linear_bf16",
                   .op = &ops::kLinear,
                   .inputs = {bf16({kRows, 64}), f32({32, 64}), absent()},
                   .attrs = ops::LinearAttrs{},
                   .tolerance = 3e-2,
                   .differentiable = {}});
  cases.push_back({.name = "linear_grad_input_bf16",
                   .op = &ops::kLinearGradInput,
                   .inputs = {bf16({kRows, 32}), f32({32, 64})},
                   .tolerance = 3e-2});
  cases.push_back({.name = "constant",
                   .op = &ops::kConstant,
                   .inputs = {},
                   .attrs = ops::ConstantAttrs{9, 1.5},
                   .replicated_only = true});
  for (const int64_t ranks : {1, 3}) {
    cases.push_back(
        {.name = fmt::format("vocab_start_of_{}_ranks", ranks),
         .op = &ops::kVocabStart,
         .inputs = {rank_at({{Axis::kTensor, 2}})},
         .attrs = ops::VocabStartAttrs{.axis = Axis::kTensor, .parts = 4, .rows = 11, .ranks = ranks},
         .replicated_only = true});
  }
  for (const auto& [name, own] : {std::pair{"loss_seed", 28.0}, std::pair{"loss_seed_without_terms", 0.0}}) {
    cases.push_back({.name = name,
                     .op = &graph::kLossSeed,
                     .inputs = {i64_of(70), i64_of(own)},
                     .attrs = graph::LossSeedAttrs{0.3},
                     .replicated_only = true});
  }
  add_attention_rows(cases);
  add_context_rows(cases);
  add_experts_rows(cases);
  add_latent_rows(cases);
  add_routers_rows(cases);
  add_update_rows(cases);
  return cases;
}

}  // namespace
}  // namespace op_rows

std::vector<OpCase> op_rows::untyped_cases() {
  return make_cases();
}

std::optional<OpCase> in_bf16(const OpCase& one) {
  OpCase changed = one;
  bool any = false;
  for (Operand& operand : changed.inputs) {
    if (!operand.activation) continue;
    operand.dtype = DType::kBF16;
    any = true;
  }
  if (one.op == &ops::kEmbedding) {
    auto attrs = one.attrs.as<ops::EmbeddingAttrs>();
    attrs.dtype = DType::kBF16;
    changed.attrs = attrs;
    any = true;
  }
  if (!any) return std::nullopt;
  changed.name += "_in_bf16";
  changed.tolerance = 2e-2;
  return changed;
}

void put_element(DType dtype, std::byte* to, int64_t i, double value) {
  switch (dtype) {
    case DType::kF64:
      reinterpret_cast<double*>(to)[i] = value;
      return;
    case DType::kI64:
      reinterpret_cast<int64_t*>(to)[i] = static_cast<int64_t>(value);
      return;
    case DType::kI32:
      reinterpret_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
      return;
    case DType::kU8:
      to[i] = static_cast<std::byte>(value);
      return;
    case DType::kBF16:
      reinterpret_cast<BF16*>(to)[i] = BF16(static_cast<float>(value));
      return;
    case DType::kF32:
      reinterpret_cast<float*>(to)[i] = static_cast<float>(value);
      return;
    default:
      throw InternalError("no case has elements of {}", name_of(dtype));
  }
}

void fill(const Operand& operand, std::byte* to) {
  for (int64_t i = 0; i < operand.shape.elements(); ++i)
    put_element(operand.dtype, to, i, operand.content(i));
}

OpGraph graph_of(const OpCase& one, const std::vector<Operand>& inputs) {
  OpGraph made;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = inputs[i];
    graph::ValueId id =
        operand.same_as >= 0 ? made.inputs[static_cast<size_t>(operand.same_as)] : graph::kNone;
    // A parameter, so that a weight among them is encoded as the device wants it.
    if (!operand.absent) {
      id = add_operand(made.graph, "in" + std::to_string(i), operand.dtype, operand.shape, operand.segments,
                       graph::Role::kParameter);
      made.graph.value(id).segments_along = operand.segments_along;
    }
    made.inputs.push_back(id);
  }
  const graph::Node node{one.op, made.inputs, {}, one.attrs};
  const auto specs = one.op->infer({made.graph, node});
  for (size_t o = 0; o < specs.size(); ++o) {
    graph::ValueId id = graph::kNone;
    if (specs[o].absent) {
      made.outputs.push_back(id);
      continue;
    }
    if (o < one.updates.size() && one.updates[o] >= 0) {
      id = made.inputs[static_cast<size_t>(one.updates[o])];
    } else if (std::find(one.left_out.begin(), one.left_out.end(), static_cast<int>(o)) ==
               one.left_out.end()) {
      id = add_operand(made.graph, std::string(specs[o].suffix), specs[o].dtype, specs[o].shape,
                       specs[o].segments);
    }
    made.outputs.push_back(id);
  }
  made.graph.add_node_into(*one.op, made.inputs, made.outputs, one.attrs);
  // Both encodings of a weight: what its product and the product's gradient want.
  if (one.encoding) made.graph.add_node(ops::kLinearGradInput, {made.outputs[0], made.inputs[1]});
  return made;
}

}  // namespace strata::device
