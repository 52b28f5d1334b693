#include "ops/catalogue.h"

#include "device/expert_dispatch.h"
#include "graph/loss_seed.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/capacity/capacity.h"
#include "ops/causal_convolution/causal_convolution.h"
#include "ops/chosen_share/chosen_share.h"
#include "ops/clamp/clamp.h"
#include "ops/constant/constant.h"
#include "ops/context_attention/context_attention.h"
#include "ops/copy/copy.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/expert_choice/expert_choice.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"
#include "ops/gate/gate.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/jitter/jitter.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/pair_places/pair_places.h"
#include "ops/predict/predict.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/quantize/quantize.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence_gates/recurrence_gates.h"
#include "ops/relative_bias/relative_bias.h"
#include "ops/rope/rope.h"
#include "ops/router/router.h"
#include "ops/scaled_experts/scaled_experts.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "ops/select/select.h"
#include "ops/share_heads/share_heads.h"
#include "ops/soft_experts/soft_experts.h"
#include "ops/softcap/softcap.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "ops/statistics/statistics.h"
#include "ops/take_part/take_part.h"
#include "ops/temper/temper.h"
#include "ops/two_level/two_level.h"
#include "ops/vocabulary/vocabulary.h"
#include "optim/delayed_scale/delayed_scale.h"
#include "optim/optimizers.h"
#include "optim/router_bias/router_bias.h"
#include "optim/row_clip/row_clip.h"
#include "optim/scalars/scalars.h"
#include "optim/score_clip/score_clip.h"
#include "optim/stored/stored.h"

namespace strata::ops {
namespace {

template <typename Op>
CatalogueEntry entry() {
  return {&Op::def, [](const reference::Call& call) { reference::compute<Op>(reference::Arrays<Op>(call)); },
          device::cases<Op>};
}

template <typename... Ops>
void add_ops(std::vector<CatalogueEntry>& to, optim::OpList<Ops...>) {
  (to.push_back(entry<Ops>()), ...);
}
template <typename Op>
CatalogueEntry entry_on_host() {
  return {&Op::def, nullptr, device::cases<Op>,
          [](const device::BindRequest& request) { return device::bind_on_host(device::Bind<Op>(request)); }};
}

}  // namespace

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> kOps = [] {
    std::vector<CatalogueEntry> all{
        entry<Attention>(),
        entry<AttentionGrad>(),
        entry<CachedAttention>(),
        entry<SinkGrad>(),
        entry<CausalConvolution>(),
        entry<CausalConvolutionGradInput>(),
        entry<CausalConvolutionGradWeight>(),
        entry<ConvolutionTails>(),
        entry<ConvolutionTailsGrad>(),
        entry<ShiftPieces>(),
        entry<CachedConvolution>(),
        entry<Clamp>(),
        entry<ClampGrad>(),
        entry<ClampedGated>(),
        entry<ClampedGatedGrad>(),
        entry<ContextAttention>(),
        entry<ContextAttentionGrad>(),
        entry<MergeAttention>(),
        entry<SplitQkv>(),
        entry<JoinQkv>(),
        entry<CrossAttention>(),
        entry<CrossAttentionGrad>(),
        entry<CachedCrossAttention>(),
        entry<StoreCross>(),
        entry<DocumentEnds>(),
        entry<SplitLatents>(),
        entry<JoinLatents>(),
        entry<LatentHeads>(),
        entry<LatentHeadsGrad>(),
        entry<LatentKeys>(),
        entry<LatentKeysGrad>(),
        entry<CachedLatentAttention>(),
        entry<Recurrence>(),
        entry<RecurrenceGrad>(),
        entry<RecurrenceSkipGrad>(),
        entry<RecurrenceMap>(),
        entry<RecurrenceStateGrad>(),
        entry<ComposeMaps>(),
        entry<ComposeStateGrads>(),
        entry<CachedRecurrence>(),
        entry<SelectKeys>(),
        entry<CachedSelectKeys>(),
        entry<SparseAttention>(),
        entry<SparseAttentionGrad>(),
        entry<IndexerLoss>(),
        entry<IndexerLossGrad>(),
        entry<RelativeBias>(),
        entry<RelativeBiasGrad>(),
        entry<RopeTable>(),
        entry<Rope>(),
        entry<ShareHeads>(),
        entry<ShareHeadsGrad>(),
        entry<ChosenShare>(),
        entry<Copy>(),
        entry<TakePart>(),
        entry<TakePartGrad>(),
        entry<Temper>(),
        entry<ChunkBegins>(),
        entry<LimitExperts>(),
        entry<WeightsOfKept>(),
        entry<ExpertBias>(),
        entry<ExpertBiasGrad>(),
        entry<ExpertBiasGradWeights>(),
        entry<ExpertsIn>(),
        entry<ExpertsInGradInput>(),
        entry<ExpertsInGradWeight>(),
        entry<ExpertsOut>(),
        entry<ExpertsOutGradInput>(),
        entry<ExpertsOutGradWeight>(),
        entry<ExpertCounts>(),
        entry<RunningCounts>(),
        entry<ExpertChoice>(),
        entry<ExpertChoiceGrad>(),
        entry<GatherRows>(),
        entry<ScatterRows>(),
        entry<Jitter>(),
        entry<SamplePlaces>(),
        entry<PairPlaces>(),
        entry<Cast>(),
        entry<Route>(),
        entry<RouteGrad>(),
        entry<ScaleRows>(),
        entry<ScaleRowsGrad>(),
        entry<RouterSums>(),
        entry<RouterSumsGrad>(),
        entry<BalanceLoss>(),
        entry<BalanceLossGrad>(),
        entry<RouterZLoss>(),
        entry<RouterZLossGrad>(),
        entry<SoftDispatch>(),
        entry<SoftDispatchGrad>(),
        entry<SoftCombine>(),
        entry<SoftCombineGrad>(),
        entry<TwoLevelLogits>(),
        entry<TwoLevelLogitsGrad>(),
        entry<Statistics>(),
        entry<TakeSample>(),
        entry<SampleChange>(),
        entry<SquaresAndDigests>(),
        entry<JoinDigests>(),
        entry<optim::SumOfSquares>(),
        entry<optim::SumOfPartials>(),
        entry<optim::RootOfSum>(),
        entry<optim::StepScalars>(),
        entry<optim::RowSquares>(),
        entry<optim::ClipRows>(),
        entry<optim::ScoreFactors>(),
        entry<optim::ScaleRows>(),
        entry<optim::ScoreSummary>(),
        entry<optim::RouterBiasUpdate>(),
        entry<optim::StoredUpdate>(),
        entry<optim::FollowHistory>(),
        entry<graph::Add>(),
        entry<graph::LossSeed>(),
        entry<graph::TakeShard>(),
        entry<Activation>(),
        entry<ActivationGrad>(),
        entry<Gated>(),
        entry<GatedGrad>(),
        entry<Constant>(),
        entry<Scale>(),
        entry<ScaleParts>(),
        entry<AddRow>(),
        entry<AddRowGrad>(),
        entry<Embedding>(),
        entry<EmbeddingGrad>(),
        entry<Linear>(),
        entry<LinearGradInput>(),
        entry<LinearGradWeight>(),
        entry<ColumnSums>(),
        entry<LinearCrossEntropy>(),
        entry<LinearCrossEntropyTrain>(),
        entry<CrossEntropyStatistics>(),
        entry<CrossEntropyLoss>(),
        entry<CrossEntropyLossGrad>(),
        entry<CrossEntropyGradInput>(),
        entry<CrossEntropyGradWeight>(),
        entry<CrossEntropyGrad>(),
        entry<RmsNorm>(),
        entry<RmsNormGradInput>(),
        entry<RmsNormGradWeight>(),
        entry<LayerNorm>(),
        entry<LayerNormGradInput>(),
        entry<LayerNormGradWeight>(),
        entry<TargetsAhead>(),
        entry<Quantize>(),
        entry<GreatestMagnitudes>(),
        entry<GreatestOfRanks>(),
        entry<ScaledLinear>(),
        entry<ScaledLinearGradInput>(),
        entry<ScaledLinearGradWeight>(),
        entry<ScaledExpertsIn>(),
        entry<ScaledExpertsInGradInput>(),
        entry<ScaledExpertsInGradWeight>(),
        entry<ScaledExpertsOut>(),
        entry<ScaledExpertsOutGradInput>(),
        entry<ScaledExpertsOutGradWeight>(),
        entry<Gate>(),
        entry<GateGrad>(),
        entry<GatedNorm>(),
        entry<GatedNormGradInput>(),
        entry<GatedNormGradWeight>(),
        entry<GatedMeans>(),
        entry<QkNorm>(),
        entry<QkNormGradInput>(),
        entry<QkNormGradWeight>(),
        entry<QkMeans>(),
        entry<RecurrenceGates>(),
        entry<RecurrenceGatesGradInput>(),
        entry<RecurrenceGatesGradWeight>(),
        entry<TakeRow>(),
        entry<Softcap>(),
        entry<VocabStart>(),
        entry<OwnExperts>(),
        entry_on_host<PlanDispatch>(),
        entry_on_host<DispatchRows>(),
        entry_on_host<CombineRows>(),
        entry_on_host<CombineSlotGrads>(),
        entry<RemainingTokens>(),
        entry<ExpertRounds>(),
    };
    std::apply(
        [&](const auto&... each) {
          (add_ops(all, typename std::remove_cvref_t<decltype(each)>::Ops{}), ...);
        },
        optim::Optimizers{});
    return all;
  }();
  return kOps;
}

}  // namespace strata::ops

namespace strata::device {
namespace {

const Cases& all_cases() {
  static const Cases kAll = [] {
    Cases all;
    for (const ops::CatalogueEntry& entry : ops::catalogue()) entry.cases(all);
    return all;
  }();
  return kAll;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  return all_cases().cases;
}
const std::vector<OpCase>& timed_cases() {
  return all_cases().timed;
}
std::span<const UntimedOp> untimed_ops() {
  return all_cases().reasons;
}

}  // namespace strata::device
