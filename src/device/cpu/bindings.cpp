// The CPU's binding table.
#include "device/cpu/bindings.h"

#include "device/cpu/cpu.h"
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

namespace strata::device {

std::span<const Binding> cpu_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> table{
        row<ops::Attention>(Cpu{}),
        row<ops::AttentionGrad>(Cpu{}),
        row<ops::CachedAttention>(Cpu{}),
        row<ops::SinkGrad>(Cpu{}),
        row<graph::Add>(Cpu{}),
        row<graph::LossSeed>(Cpu{}),
        row<graph::TakeShard>(Cpu{}),
        row<ops::Activation>(Cpu{}),
        row<ops::ActivationGrad>(Cpu{}),
        row<ops::Gated>(Cpu{}),
        row<ops::GatedGrad>(Cpu{}),
        row<ops::CausalConvolution>(Cpu{}),
        row<ops::CausalConvolutionGradInput>(Cpu{}),
        row<ops::CausalConvolutionGradWeight>(Cpu{}),
        row<ops::ConvolutionTails>(Cpu{}),
        row<ops::ConvolutionTailsGrad>(Cpu{}),
        row<ops::ShiftPieces>(Cpu{}),
        row<ops::CachedConvolution>(Cpu{}),
        row<ops::Clamp>(Cpu{}),
        row<ops::ClampGrad>(Cpu{}),
        row<ops::ClampedGated>(Cpu{}),
        row<ops::ClampedGatedGrad>(Cpu{}),
        row<ops::ContextAttention>(Cpu{}),
        row<ops::ContextAttentionGrad>(Cpu{}),
        row<ops::MergeAttention>(Cpu{}),
        row<ops::SplitQkv>(Cpu{}),
        row<ops::JoinQkv>(Cpu{}),
        row<ops::CrossAttention>(Cpu{}),
        row<ops::CrossAttentionGrad>(Cpu{}),
        row<ops::CachedCrossAttention>(Cpu{}),
        row<ops::StoreCross>(Cpu{}),
        row<ops::DocumentEnds>(Cpu{}),
        row<ops::SplitLatents>(Cpu{}),
        row<ops::JoinLatents>(Cpu{}),
        row<ops::LatentHeads>(Cpu{}),
        row<ops::LatentHeadsGrad>(Cpu{}),
        row<ops::LatentKeys>(Cpu{}),
        row<ops::LatentKeysGrad>(Cpu{}),
        row<ops::CachedLatentAttention>(Cpu{}),
        row<ops::Recurrence>(Cpu{}),
        row<ops::RecurrenceGrad>(Cpu{}),
        row<ops::RecurrenceSkipGrad>(Cpu{}),
        row<ops::RecurrenceMap>(Cpu{}),
        row<ops::RecurrenceStateGrad>(Cpu{}),
        row<ops::ComposeMaps>(Cpu{}),
        row<ops::ComposeStateGrads>(Cpu{}),
        row<ops::CachedRecurrence>(Cpu{}),
        row<ops::SelectKeys>(Cpu{}),
        row<ops::CachedSelectKeys>(Cpu{}),
        row<ops::SparseAttention>(Cpu{}),
        row<ops::SparseAttentionGrad>(Cpu{}),
        row<ops::IndexerLoss>(Cpu{}),
        row<ops::IndexerLossGrad>(Cpu{}),
        row<ops::RelativeBias>(Cpu{}),
        row<ops::RelativeBiasGrad>(Cpu{}),
        row<ops::RopeTable>(Cpu{}),
        row<ops::Rope>(Cpu{}),
        row<ops::ShareHeads>(Cpu{}),
        row<ops::ShareHeadsGrad>(Cpu{}),
        row<ops::ChosenShare>(Cpu{}),
        row<ops::Copy>(Cpu{}),
        row<ops::TakePart>(Cpu{}),
        row<ops::TakePartGrad>(Cpu{}),
        row<ops::Temper>(Cpu{}),
        row<ops::ChunkBegins>(Cpu{}),
        row<ops::LimitExperts>(Cpu{}),
        row<ops::WeightsOfKept>(Cpu{}),
        row<ops::ExpertBias>(Cpu{}),
        row<ops::ExpertBiasGrad>(Cpu{}),
        row<ops::ExpertBiasGradWeights>(Cpu{}),
        row<ops::OwnExperts>(Cpu{}),
        row<ops::PlanDispatch>(Cpu{}),
        row<ops::DispatchRows>(Cpu{}),
        row<ops::CombineRows>(Cpu{}),
        row<ops::CombineSlotGrads>(Cpu{}),
        row<ops::RemainingTokens>(Cpu{}),
        row<ops::ExpertRounds>(Cpu{}),
        row<ops::ExpertsIn>(Cpu{}),
        row<ops::ExpertsInGradInput>(Cpu{}),
        row<ops::ExpertsInGradWeight>(Cpu{}),
        row<ops::ExpertsOut>(Cpu{}),
        row<ops::ExpertsOutGradInput>(Cpu{}),
        row<ops::ExpertsOutGradWeight>(Cpu{}),
        row<ops::ExpertCounts>(Cpu{}),
        row<ops::RunningCounts>(Cpu{}),
        row<ops::ExpertChoice>(Cpu{}),
        row<ops::ExpertChoiceGrad>(Cpu{}),
        row<ops::GatherRows>(Cpu{}),
        row<ops::ScatterRows>(Cpu{}),
        row<ops::Jitter>(Cpu{}),
        row<ops::SamplePlaces>(Cpu{}),
        row<ops::PairPlaces>(Cpu{}),
        row<ops::Cast>(Cpu{}),
        row<ops::Route>(Cpu{}),
        row<ops::RouteGrad>(Cpu{}),
        row<ops::ScaleRows>(Cpu{}),
        row<ops::ScaleRowsGrad>(Cpu{}),
        row<ops::RouterSums>(Cpu{}),
        row<ops::RouterSumsGrad>(Cpu{}),
        row<ops::BalanceLoss>(Cpu{}),
        row<ops::BalanceLossGrad>(Cpu{}),
        row<ops::RouterZLoss>(Cpu{}),
        row<ops::RouterZLossGrad>(Cpu{}),
        row<ops::SoftDispatch>(Cpu{}),
        row<ops::SoftDispatchGrad>(Cpu{}),
        row<ops::SoftCombine>(Cpu{}),
        row<ops::SoftCombineGrad>(Cpu{}),
        row<ops::TwoLevelLogits>(Cpu{}),
        row<ops::TwoLevelLogitsGrad>(Cpu{}),
        row<ops::Statistics>(Cpu{}),
        row<ops::TakeSample>(Cpu{}),
        row<ops::SampleChange>(Cpu{}),
        row<ops::SquaresAndDigests>(Cpu{}),
        row<ops::JoinDigests>(Cpu{}),
        row<optim::SumOfSquares>(Cpu{}),
        row<optim::SumOfPartials>(Cpu{}),
        row<optim::RootOfSum>(Cpu{}),
        row<optim::StepScalars>(Cpu{}),
        row<optim::RowSquares>(Cpu{}),
        row<optim::ClipRows>(Cpu{}),
        row<optim::ScoreFactors>(Cpu{}),
        row<optim::ScaleRows>(Cpu{}),
        row<optim::ScoreSummary>(Cpu{}),
        row<optim::RouterBiasUpdate>(Cpu{}),
        encoding_row<optim::AdamWUpdate>(Cpu{}),
        row<optim::StoredUpdate>(Cpu{}),
        row<optim::FollowHistory>(Cpu{}),
        row<optim::MuonUpdate>(Cpu{}),
        row<optim::MuonMomentum>(Cpu{}),
        row<optim::NewtonSchulz>(Cpu{}),
        row<optim::MuonApply>(Cpu{}),
        row<optim::LionUpdate>(Cpu{}),
        row<optim::AdafactorUpdate>(Cpu{}),
        row<optim::AdafactorVectorUpdate>(Cpu{}),
        row<optim::AdafactorSums>(Cpu{}),
        row<optim::AdafactorColumns>(Cpu{}),
        row<optim::AdafactorApply>(Cpu{}),
        row<optim::AdamW8BitUpdate>(Cpu{}),
        row<optim::AdamW8BitLargest>(Cpu{}),
        row<optim::AdamW8BitShard>(Cpu{}),
        row<ops::Constant>(Cpu{}),
        row<ops::Scale>(Cpu{}),
        row<ops::ScaleParts>(Cpu{}),
        row<ops::AddRow>(Cpu{}),
        row<ops::AddRowGrad>(Cpu{}),
        row<ops::Embedding>(Cpu{}),
        row<ops::EmbeddingGrad>(Cpu{}),
        row<ops::Linear>(Cpu{}, with_encodings),
        row<ops::LinearGradInput>(Cpu{}, with_encodings),
        row<ops::LinearGradWeight>(Cpu{}),
        row<ops::ColumnSums>(Cpu{}),
        row<ops::PackWeight>(Cpu{}),
        row<ops::LinearCrossEntropy>(Cpu{}, with_encodings),
        row<ops::LinearCrossEntropyTrain>(Cpu{}, with_encodings),
        row<ops::CrossEntropyStatistics>(Cpu{}, with_encodings),
        row<ops::CrossEntropyLoss>(Cpu{}),
        row<ops::CrossEntropyLossGrad>(Cpu{}),
        row<ops::CrossEntropyGradInput>(Cpu{}, with_encodings),
        row<ops::CrossEntropyGradWeight>(Cpu{}, with_encodings),
        row<ops::CrossEntropyGrad>(Cpu{}, with_encodings),
        row<ops::RmsNorm>(Cpu{}),
        row<ops::RmsNormGradInput>(Cpu{}),
        row<ops::RmsNormGradWeight>(Cpu{}),
        row<ops::LayerNorm>(Cpu{}),
        row<ops::LayerNormGradInput>(Cpu{}),
        row<ops::LayerNormGradWeight>(Cpu{}),
        row<ops::TargetsAhead>(Cpu{}),
        row<ops::Quantize>(Cpu{}),
        row<ops::GreatestMagnitudes>(Cpu{}),
        row<ops::GreatestOfRanks>(Cpu{}),
        row<ops::ScaledLinear>(Cpu{}),
        row<ops::ScaledLinearGradInput>(Cpu{}),
        row<ops::ScaledLinearGradWeight>(Cpu{}),
        row<ops::ScaledExpertsIn>(Cpu{}),
        row<ops::ScaledExpertsInGradInput>(Cpu{}),
        row<ops::ScaledExpertsInGradWeight>(Cpu{}),
        row<ops::ScaledExpertsOut>(Cpu{}),
        row<ops::ScaledExpertsOutGradInput>(Cpu{}),
        row<ops::ScaledExpertsOutGradWeight>(Cpu{}),
        row<ops::Gate>(Cpu{}),
        row<ops::GateGrad>(Cpu{}),
        row<ops::GatedNorm>(Cpu{}),
        row<ops::GatedNormGradInput>(Cpu{}),
        row<ops::GatedNormGradWeight>(Cpu{}),
        row<ops::GatedMeans>(Cpu{}),
        row<ops::QkNorm>(Cpu{}),
        row<ops::QkNormGradInput>(Cpu{}),
        row<ops::QkNormGradWeight>(Cpu{}),
        row<ops::QkMeans>(Cpu{}),
        row<ops::RecurrenceGates>(Cpu{}),
        row<ops::RecurrenceGatesGradInput>(Cpu{}),
        row<ops::RecurrenceGatesGradWeight>(Cpu{}),
        row<ops::TakeRow>(Cpu{}),
        row<ops::Softcap>(Cpu{}),
        row<ops::VocabStart>(Cpu{}),
        row<optim::AdoptUpdate>(Cpu{}),
    };
    return table;
  }();
  return kTable;
}

}  // namespace strata::device
