// The sizes at which rates are measured. Several rows of one op are several shapes, between which predictions
// interpolate.
#include "ops/case_operands.h"
#include "graph/loss_seed.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/capacity.h"
#include "ops/context_attention.h"
#include "ops/expert_choice.h"
#include "ops/expert_parallel.h"
#include "ops/experts.h"
#include "ops/jitter.h"
#include "ops/latent_attention.h"
#include "ops/ops.h"
#include "ops/predict.h"
#include "ops/router.h"
#include "ops/soft_experts.h"
#include "ops/take_part.h"
#include "ops/temper.h"
#include "ops/two_level.h"
#include "optim/optimizer.h"
#include "optim/router_bias.h"

namespace strata::device {
namespace op_rows {
namespace {

using graph::Attributes;

constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 512;
constexpr int64_t kFfn = 1536;
constexpr int64_t kVocab = 8192;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kHeads = kWidth / kHeadDim;
constexpr int64_t kKvWidth = kWidth / 2;

Operand rows(int64_t width, std::vector<int64_t> segments = {}) {
  return act({kTokens, width}, std::move(segments));
}
Operand qkv() {
  return rows(kWidth + 2 * kKvWidth, {kWidth, kKvWidth, kKvWidth});
}
Operand ids(int64_t n, int64_t below) {
  return i32_by(n, [below](int64_t i) { return static_cast<double>(i * 7919 % below); });
}

class Timed {
 public:
  std::vector<OpCase> all() {
    linear();
    elementwise();
    norms();
    attention();
    cross_attention();
    context_attention();
    experts();
    latent_attention();
    embedding_and_loss();
    update();
    return std::move(cases_);
  }

 private:
  OpCase& add(const graph::OpDef& op, std::vector<Operand> inputs, Attributes attrs = {},
              std::vector<int> updates = {}) {
    cases_.push_back({.name = std::string(op.name),
                      .op = &op,
                      .inputs = std::move(inputs),
                      .attrs = std::move(attrs),
                      .updates = std::move(updates)});
    return cases_.back();
  }

  void linear() {
    struct Size {
      int64_t outputs, inputs;
    };
    for (const Size& size : {Size{256, 256}, Size{1024, 512}, Size{512, 2048}, Size{2048, 1024}}) {
      const Operand w = f32({size.outputs, size.inputs});
      add(ops::kLinear, {rows(size.inputs), w, absent()}, ops::LinearAttrs{});
      add(ops::kLinearGradInput, {rows(size.outputs), w});
      add(ops::kLinearGradWeight, {rows(size.outputs), rows(size.inputs)});
    }
    add(ops::kLinear, {rows(kWidth), f32({kFfn, kWidth}), absent()}, ops::LinearAttrs{}).encoding = true;
  }

  void elementwise() {
    const std::vector<int64_t> gate_up{kFfn, kFfn};
    const ops::ActivationAttrs silu{ActivationKind::kSilu};
    const ops::ActivationAttrs gelu{ActivationKind::kGeluTanh};
    add(graph::kAdd, {rows(kWidth), rows(kWidth)});
    add(ops::kGated, {rows(2 * kFfn, gate_up)}, silu);
    add(ops::kGatedGrad, {rows(kFfn), rows(2 * kFfn, gate_up)}, silu);
    add(ops::kActivation, {rows(kFfn)}, gelu);
    add(ops::kActivationGrad, {rows(kFfn), rows(kFfn)}, gelu);
    add(ops::kColumnSums, {rows(kFfn)});
    add(ops::kScale, {rows(kWidth)}, ops::ScaleAttrs{0.5});
    add(ops::kAddRow, {rows(kWidth), f32({2, kWidth})}, ops::AddRowAttrs{0});
    add(ops::kAddRowGrad, {rows(kWidth)}, ops::AddRowGradAttrs{.rows = 2});
  }

  void norms() {
    const ops::RmsNormAttrs rms;
    const ops::LayerNormAttrs layer;
    const Operand x = rows(kWidth), w = f32({kWidth}), one = f32({kTokens});
    add(ops::kRmsNorm, {x, w, x}, rms);
    add(ops::kRmsNormGradInput, {x, x, one, w, x}, rms);
    add(ops::kRmsNormGradWeight, {x, x, one}, rms);
    add(ops::kLayerNorm, {x, w, w, x}, layer);
    add(ops::kLayerNormGradInput, {x, x, one, one, w, x}, layer);
    add(ops::kLayerNormGradWeight, {x, x, one, one}, layer);
    const Operand head = f32({kHeadDim});
    constexpr int64_t kKvHeads = kKvWidth / kHeadDim;
    const Operand rstd = f32({kTokens, kHeads + kKvHeads}, {kHeads, kKvHeads});
    const ops::QkNormAttrs qk{.eps = 1e-5}, widths{.eps = 1e-5, .q_width = kHeadDim, .k_width = kHeadDim};
    add(ops::kQkNorm, {qkv(), head, head, absent()}, qk);
    add(ops::kQkNormGradInput, {qkv(), qkv(), rstd, head, head, absent()}, qk);
    add(ops::kQkNormGradWeight, {qkv(), qkv(), rstd}, widths);
    const Operand all_heads = f32({kHeads * kHeadDim}), all_kv = f32({kKvWidth});
    add(ops::kQkMeans, {qkv(), qkv(), all_heads, all_kv},
        ops::QkMeansAttrs{.q_width = kHeads * kHeadDim, .k_width = kKvWidth});
    const ops::ShareHeadsAttrs shared{.head_dim = kHeadDim, .copies = 2};
    const Operand rank = rank_at({});
    add(ops::kShareHeads,
        {rows(kHeads * kHeadDim), act({kTokens, kKvWidth}, {kKvWidth / 2, kKvWidth / 2}), rank}, shared);
    add(ops::kShareHeadsGrad, {qkv(), rank}, shared);
  }

  void attention() {
    add(ops::kRope, {qkv(), f32({kTokens, kHeadDim / 2, 2}), zeros({kTokens}, DType::kI32)},
        ops::RopeAttrs{.head_dim = kHeadDim});
    const Operand begin = zeros({kTokens}, DType::kI32);
    for (const int64_t length : {256, 512, 1024}) {
      const ops::AttentionAttrs attrs{.head_dim = kHeadDim, .sequence_length = length, .scale = 0.125};
      add(ops::kAttention, {qkv(), begin, absent(), absent(), absent()}, attrs);
      add(ops::kAttentionGrad,
          {rows(kWidth), rows(kWidth), f32({kTokens / length, kHeads, length}), qkv(), begin, absent(),
           absent()},
          attrs);
    }
    const ops::RelativeBiasAttrs distances{.first = -kTokens, .last = kTokens, .buckets = 32};
    add(ops::kRelativeBias, {f32({32, kHeads})}, distances);
    add(ops::kRelativeBiasGrad, {f32({kHeads, 2 * kTokens + 1})}, distances);
  }

  void cross_attention() {
    constexpr int64_t kLength = 256, kSource = 512;
    const ops::CrossAttentionAttrs attrs{
        .head_dim = kHeadDim, .sequence_length = kLength, .scale = 0.125, .encoder_length = kSource};
    const Operand q = rows(kWidth);
    const Operand kv = act({kTokens / kLength * kSource, 2 * kKvWidth}, {kKvWidth, kKvWidth});
    add(ops::kCrossAttention, {q, kv, absent(), absent()}, attrs);
    add(ops::kCrossAttentionGrad,
        {q, q, f32({kTokens / kLength, kHeads, kLength}), q, kv, absent(), absent()}, attrs);
    add(ops::kDocumentEnds,
        {zeros({kTokens}, DType::kI32), zeros({kTokens / kLength * kSource}, DType::kI32)},
        ops::DocumentEndsAttrs{kLength, kSource});
  }

  void context_attention() {
    constexpr int64_t kLength = 256, kSource = 512;
    const ops::ContextAttentionAttrs attrs{.head_dim = kHeadDim,
                                           .sequence_length = kLength,
                                           .kv_length = kSource,
                                           .scale = 0.125,
                                           .causal = true,
                                           .ranks = kSource / kLength};
    const Operand q = rows(kWidth), begin = zeros({kTokens}, DType::kI32), rank = rank_at({});
    const Operand kv = act({kTokens / kLength * kSource, 2 * kKvWidth}, {kKvWidth, kKvWidth});
    add(ops::kContextAttention, {q, kv, begin, absent(), absent(), rank, absent()}, attrs);
    add(ops::kContextAttentionGrad,
        {q, q, f32({kTokens / kLength, kHeads, kLength}), q, kv, begin, absent(), absent(), rank}, attrs);
    const Operand lse = f32({kTokens / kLength, kHeads, kLength});
    add(ops::kMergeAttention, {q, lse, q, lse, absent(), absent(), absent(), absent(), absent(), absent()},
        attrs);
    add(ops::kSplitQkv, {qkv()});
    add(ops::kJoinQkv, {q, act({kTokens, 2 * kKvWidth}, {kKvWidth, kKvWidth})});
  }

  // Equally busy, as they are meant to be.
  void experts() {
    constexpr int64_t kExperts = 16, kSlots = 4, kExpertFfn = 192;
    const ops::ExpertsAttrs attrs{kExperts};
    const Operand routed{.dtype = DType::kI32, .shape = {kTokens, kSlots}, .content = [](int64_t i) {
                           return static_cast<double>((i + i / (2 * kExperts)) % kExperts);
                         }};
    const Operand up = f32({kExperts * 2 * kExpertFfn, kWidth}), down = f32({kExperts * kWidth, kExpertFfn});
    const Operand gate_up = act({kTokens * kSlots, 2 * kExpertFfn}), h = act({kTokens * kSlots, kExpertFfn});
    add(ops::kExpertsIn, {rows(kWidth), routed, up, absent()}, attrs);
    add(ops::kExpertsInGradInput, {gate_up, routed, up, absent()}, attrs);
    add(ops::kExpertsInGradWeight, {gate_up, rows(kWidth), routed, absent()}, attrs);
    add(ops::kExpertsOut, {h, routed, down, absent()}, attrs);
    add(ops::kExpertsOutGradInput, {rows(kWidth), routed, down, absent()}, attrs);
    add(ops::kExpertsOutGradWeight, {rows(kWidth), h, routed, absent()}, attrs);
    const Operand logits = f32({kTokens, kExperts}), weights = f32({kTokens, kSlots});
    const ops::RouteAttrs route{.k = kSlots, .normalize = true};
    add(ops::kRoute, {logits, absent(), absent()}, route);
    add(ops::kRouteGrad, {weights, logits, routed}, route);
    add(ops::kScaleRows, {h, weights});
    add(ops::kScaleRowsGrad, {h, h, weights});
    add(ops::kRouterSums, {logits, routed}, ops::RouterSumsAttrs{});
    add(ops::kRouterSumsGrad, {f32({1, kExperts}), logits}, ops::RouterSumsAttrs{});
    const Operand targets = zeros({kTokens}, DType::kI32);
    add(ops::kRouterZLoss, {logits, targets}, ops::ZLossAttrs{0.001});
    add(ops::kRouterZLossGrad, {logits, targets}, ops::ZLossAttrs{0.001});
    add(ops::kCast, {rows(kWidth)}, ops::CastAttrs{DType::kF32});
  }

  // Of heads of 64 + 32 and values of 64.
  void latent_attention() {
    constexpr int64_t kRotary = 32, kLength = 512, kQueries = kHeads * (kHeadDim + kRotary);
    const ops::LatentAttrs heads{kHeadDim, kRotary, kHeadDim};
    const Operand parts = rows(2 * kQueries + kWidth, {kQueries, kQueries, kWidth});
    add(ops::kSplitLatents, {rows(384 + 256 + kRotary)}, ops::SplitLatentsAttrs{{384, 256, kRotary}});
    add(ops::kJoinLatents, {rows(384), rows(256), rows(kRotary)});
    add(ops::kLatentHeads, {rows(kQueries), rows(2 * kWidth, {kWidth, kWidth}), rows(kRotary)}, heads);
    add(ops::kLatentHeadsGrad, {parts}, heads);
    const ops::AttentionAttrs attrs{
        .head_dim = kHeadDim + kRotary, .sequence_length = kLength, .scale = 0.125, .value_dim = kHeadDim};
    add(ops::kAttention, {parts, absent(), absent(), absent(), absent()}, attrs);
    add(ops::kAttentionGrad,
        {rows(kWidth), rows(kWidth), f32({kTokens / kLength, kHeads, kLength}), parts, absent(), absent(),
         absent()},
        attrs);
  }

  void embedding_and_loss() {
    add(ops::kEmbedding, {ids(kTokens, kVocab), f32({kVocab, kWidth}), absent(), absent(), absent()},
        ops::EmbeddingAttrs{});
    add(ops::kEmbeddingGrad, {rows(kWidth), ids(kTokens, kTokens), absent()},
        ops::EmbeddingGradAttrs{.rows = kTokens});
    // Of a single chunk: its rate hangs on the width alone.
    constexpr int64_t kChunk = 512;
    const Operand targets = ids(kChunk, kVocab);
    const ops::LinearCrossEntropyAttrs attrs;
    for (const int64_t width : {int64_t{256}, int64_t{512}, int64_t{1024}}) {
      const Operand x = act({kChunk, width}), w = f32({kVocab, width});
      add(ops::kLinearCrossEntropy, {x, w, targets, absent()}, attrs).left_out = {2, 3};
      add(ops::kLinearCrossEntropyTrain, {x, w, same_as(1), targets, absent(), absent()}, attrs);
    }
    // At one width: most runs have the fused form, and the products take long to measure.
    const Operand x = act({kChunk, kWidth}), w = f32({kVocab, kWidth});
    const Operand statistics = positive({1, kChunk, 3}), given = f32({1, kChunk, 3});
    const ops::CrossEntropyAttrs whole{.vocabulary = kVocab};
    add(ops::kCrossEntropyStatistics, {x, w, targets, absent(), absent()}, whole);
    add(ops::kCrossEntropyGradInput, {x, w, same_as(1), targets, statistics, given, absent(), absent()},
        whole);
    add(ops::kCrossEntropyGradWeight, {x, w, targets, statistics, given, absent(), absent()}, whole);
    add(ops::kCrossEntropyGrad, {x, w, same_as(1), targets, statistics, given, absent(), absent()}, whole);
  }

  void update() {
    const Operand matrix = f32({1536, 512});
    const Operand state = zeros(matrix.shape), bytes = zeros(matrix.shape, DType::kU8);
    const Operand scales = zeros({matrix.shape.elements() / 256});
    const Operand scalars = zeros({optim::kScalarBytes}, DType::kU8);
    const auto with = [](const optim::Optimizer& optimizer) {
      return optim::UpdateAttrs{{.weight_decay = 0.1, .optimizer = optimizer}};
    };
    add(optim::kSumOfSquares, {matrix});
    add(optim::kAdamW, {matrix, state, state, matrix, scalars}, with(optim::AdamW{}), {0, 1, 2});
    add(optim::kLion, {matrix, state, matrix, scalars}, with(optim::Lion{}), {0, 1});
    add(optim::kAdamW8Bit, {matrix, bytes, scales, bytes, scales, matrix, scalars}, with(optim::AdamW8Bit{}),
        {0, 1, 2, 3, 4});
    const optim::AdamW8BitShardAttrs held{.update = with(optim::AdamW8Bit{}),
                                          .rows = {{}, {{matrix.shape[0], {}}}},
                                          .columns = {{}, {{matrix.shape[1], {}}}},
                                          .axes = {},
                                          .ranks = {}};
    const Operand rank = rank_at({});
    add(optim::kAdamW8BitLargest, {bytes, scales, bytes, scales, matrix, scalars, rank}, held);
    add(optim::kAdamW8BitShard,
        {matrix, bytes, scales, bytes, scales, matrix, scalars, rank, zeros({2 * held.blocks()})}, held,
        {0, 1, 2, 3, 4});
    add(optim::kMuon, {matrix, state, matrix, scalars}, with(optim::Muon{}), {0, 1});
    const optim::MuonStackAttrs stack{{{0, with(optim::Muon{})}}};
    const Operand of_one = zeros({1, matrix.shape[0], matrix.shape[1]});
    add(optim::kMuonMomentum, {state, matrix, scalars}, stack, {0, -1});
    add(optim::kNewtonSchulz, {f32(of_one.shape)}, optim::NewtonSchulzAttrs{});
    add(optim::kMuonApply, {matrix, of_one, scalars}, stack, {0});
    add(optim::kAdafactor, {matrix, zeros({matrix.shape[0]}), zeros({matrix.shape[1]}), matrix, scalars},
        with(optim::Adafactor{}), {0, 1, 2});
    const optim::AdafactorShardAttrs tensor{with(optim::Adafactor{}), matrix.shape[0]};
    const Operand row = zeros({matrix.shape[0]}), column = zeros({matrix.shape[1]}),
                  sums = zeros({matrix.shape[1] + 2}, DType::kF64), squares = zeros({1}, DType::kF64);
    add(optim::kAdafactorSums, {matrix, row, matrix, scalars}, tensor, {1, -1});
    add(optim::kAdafactorColumns, {row, column, matrix, sums, scalars}, tensor, {1, -1});
    add(optim::kAdafactorApply, {matrix, row, column, matrix, sums, squares, scalars}, tensor, {0});
  }

  std::vector<OpCase> cases_;
};

}  // namespace
}  // namespace op_rows

std::vector<OpCase> op_rows::untyped_timed_cases() {
  return Timed().all();
}

std::span<const UntimedOp> op_rows::untyped_untimed_ops() {
  static const UntimedOp kUntimed[] = {
      {&ops::kConstant, kOnce},
      {&ops::kRopeTable, kOnce},
      {&optim::kUpdateScalars, kFewNumbers},
      {&optim::kRootOfSum, kFewNumbers},
      {&optim::kSumOfPartials, kFewNumbers},
      {&optim::kAdafactorVector, kFewNumbers},
      {&optim::kRouterBiasUpdate, kFewNumbers},
      {&graph::kLossSeed, kFewNumbers},
      {&ops::kVocabStart, kFewNumbers},
      {&ops::kTargetsAhead, "ids alone, priced by the bandwidth"},
      {&graph::kTakeShard, "a copy, priced by the bandwidth"},
      {&ops::kSinkGrad, kPass},
      {&ops::kTakePart, kPass},
      {&ops::kTakePartGrad, kPass},
      {&ops::kTemper, kPass},
      {&ops::kChunkBegins, kFewNumbers},
      {&ops::kExpertBias, kPass},
      {&ops::kExpertBiasGrad, kPass},
      {&ops::kExpertBiasGradWeights, kPass},
      {&ops::kBalanceLoss, kFewNumbers},
      {&ops::kBalanceLossGrad, kFewNumbers},
      {&ops::kExpertCounts, kFewNumbers},
      {&ops::kOwnExperts, kFewNumbers},
      {&ops::kExpertRounds, kFewNumbers},
      {&ops::kExpertParallel, kBody},
      {&ops::kExpertParallelGradInput, kBody},
      {&ops::kExpertParallelGradWeight, kBody},
      {&ops::kJitter, "small beside the experts that it is in front of"},
      {&ops::kSamplePlaces, kFewNumbers},
      {&ops::kExpertChoice, kOther},
      {&ops::kExpertChoiceGrad, kOther},
      {&ops::kGatherRows, kOther},
      {&ops::kScatterRows, kOther},
      {&ops::kSoftDispatch, kOther},
      {&ops::kSoftDispatchGrad, kOther},
      {&ops::kSoftCombine, kOther},
      {&ops::kSoftCombineGrad, kOther},
      {&ops::kTwoLevelLogits, kOther},
      {&ops::kTwoLevelLogitsGrad, kOther},
      {&ops::kLimitExperts, kFewNumbers},
      {&ops::kWeightsOfKept, kFewNumbers},
      {&ops::kRunningCounts, kFewNumbers},
      {&ops::kCrossEntropyLoss, kFewNumbers},
      {&ops::kCrossEntropyLossGrad, kFewNumbers},
      {&ops::kTakeRow, kText},
      {&ops::kSoftcap, kText},
      {&ops::kCachedAttention, kText},
      {&ops::kCachedCrossAttention, kText},
      {&ops::kStoreCross, kText},
      {&ops::kCachedLatentAttention, kText},
  };
  return kUntimed;
}

}  // namespace strata::device
