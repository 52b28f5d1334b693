#include "device/gpu/bindings.h"

#include "device/gpu/gpu.h"
#include "graph/loss_seed.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/capacity/capacity.h"
#include "ops/clamp/clamp.h"
#include "ops/constant/constant.h"
#include "ops/cross_attention/cross_attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/expert_bias/expert_bias.h"
#include "ops/expert_choice/expert_choice.h"
#include "ops/experts/experts.h"
#include "ops/jitter/jitter.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/predict/predict.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/relative_bias/relative_bias.h"
#include "ops/rope/rope.h"
#include "ops/router/router.h"
#include "ops/select/select.h"
#include "ops/soft_experts/soft_experts.h"
#include "ops/softcap/softcap.h"
#include "ops/statistics/statistics.h"
#include "ops/take_part/take_part.h"
#include "ops/temper/temper.h"
#include "ops/two_level/two_level.h"
#include "ops/vocabulary/vocabulary.h"
#include "optim/adafactor/adafactor.h"
#include "optim/adamw/adamw.h"
#include "optim/adamw8bit/adamw8bit.h"
#include "optim/adopt/adopt.h"
#include "optim/lion/lion.h"
#include "optim/muon/muon.h"
#include "optim/router_bias/router_bias.h"
#include "optim/row_clip/row_clip.h"
#include "optim/scalars/scalars.h"

namespace strata::device {

std::span<const Binding> gpu_kernels() {
  static const std::vector<Binding> kTable = {
      row<graph::Add>(Gpu{}),
      row<ops::Activation>(Gpu{}),
      row<ops::ActivationGrad>(Gpu{}),
      row<ops::Gated>(Gpu{}),
      row<ops::GatedGrad>(Gpu{}),
      row<ops::Attention>(Gpu{}),
      row<ops::AttentionGrad>(Gpu{}),
      row<ops::CachedAttention>(Gpu{}),
      row<ops::SinkGrad>(Gpu{}),
      row<ops::CrossAttention>(Gpu{}),
      row<ops::CrossAttentionGrad>(Gpu{}),
      row<ops::CachedCrossAttention>(Gpu{}),
      row<ops::StoreCross>(Gpu{}),
      row<ops::DocumentEnds>(Gpu{}),
      row<ops::SplitLatents>(Gpu{}),
      row<ops::JoinLatents>(Gpu{}),
      row<ops::LatentHeads>(Gpu{}),
      row<ops::LatentHeadsGrad>(Gpu{}),
      row<ops::CachedLatentAttention>(Gpu{}),
      row<ops::RelativeBias>(Gpu{}),
      row<ops::RelativeBiasGrad>(Gpu{}),
      row<ops::Clamp>(Gpu{}),
      row<ops::ClampGrad>(Gpu{}),
      row<ops::ClampedGated>(Gpu{}),
      row<ops::ClampedGatedGrad>(Gpu{}),
      row<ops::Constant>(Gpu{}),
      row<ops::Scale>(Gpu{}),
      row<ops::AddRow>(Gpu{}),
      row<ops::AddRowGrad>(Gpu{}),
      row<ops::Embedding>(Gpu{}),
      row<ops::EmbeddingGrad>(Gpu{}),
      row<ops::Linear>(Gpu{}, with_encodings),
      row<ops::LinearGradInput>(Gpu{}, with_encodings),
      row<ops::LinearGradWeight>(Gpu{}),
      row<ops::ColumnSums>(Gpu{}),
      row<ops::PackWeight>(Gpu{}),
      row<ops::LinearCrossEntropy>(Gpu{}, with_encodings),
      row<ops::LinearCrossEntropyTrain>(Gpu{}, with_encodings),
      row<ops::CrossEntropyStatistics>(Gpu{}, with_encodings),
      row<ops::CrossEntropyLoss>(Gpu{}),
      row<ops::CrossEntropyLossGrad>(Gpu{}),
      row<ops::CrossEntropyGradInput>(Gpu{}, with_encodings),
      row<ops::CrossEntropyGradWeight>(Gpu{}, with_encodings),
      row<ops::CrossEntropyGrad>(Gpu{}, with_encodings),
      row<graph::LossSeed>(Gpu{}),
      row<ops::TargetsAhead>(Gpu{}),
      row<ops::VocabStart>(Gpu{}),
      row<graph::TakeShard>(Gpu{}),
      row<ops::RmsNorm>(Gpu{}),
      row<ops::RmsNormGradInput>(Gpu{}),
      row<ops::RmsNormGradWeight>(Gpu{}),
      row<ops::LayerNorm>(Gpu{}),
      row<ops::LayerNormGradInput>(Gpu{}),
      row<ops::LayerNormGradWeight>(Gpu{}),
      row<ops::QkNorm>(Gpu{}),
      row<ops::QkNormGradInput>(Gpu{}),
      row<ops::QkNormGradWeight>(Gpu{}),
      row<ops::Softcap>(Gpu{}),
      row<ops::TakeRow>(Gpu{}),
      row<ops::RopeTable>(Gpu{}),
      row<ops::Rope>(Gpu{}),
      row<ops::ExpertsIn>(Gpu{}, with_encodings),
      row<ops::ExpertsInGradInput>(Gpu{}, with_encodings),
      row<ops::ExpertsInGradWeight>(Gpu{}),
      row<ops::ExpertsOut>(Gpu{}, with_encodings),
      row<ops::ExpertsOutGradInput>(Gpu{}, with_encodings),
      row<ops::ExpertsOutGradWeight>(Gpu{}),
      row<ops::ExpertCounts>(Gpu{}),
      row<ops::RunningCounts>(Gpu{}),
      row<ops::ExpertBias>(Gpu{}),
      row<ops::ExpertBiasGrad>(Gpu{}),
      row<ops::ExpertBiasGradWeights>(Gpu{}),
      row<ops::LimitExperts>(Gpu{}),
      row<ops::WeightsOfKept>(Gpu{}),
      row<ops::ExpertChoice>(Gpu{}),
      row<ops::ExpertChoiceGrad>(Gpu{}),
      row<ops::GatherRows>(Gpu{}),
      row<ops::ScatterRows>(Gpu{}),
      row<ops::Jitter>(Gpu{}),
      row<ops::SamplePlaces>(Gpu{}),
      row<ops::Cast>(Gpu{}),
      row<ops::Route>(Gpu{}),
      row<ops::RouteGrad>(Gpu{}),
      row<ops::ScaleRows>(Gpu{}),
      row<ops::ScaleRowsGrad>(Gpu{}),
      row<ops::RouterSums>(Gpu{}),
      row<ops::RouterSumsGrad>(Gpu{}),
      row<ops::BalanceLoss>(Gpu{}),
      row<ops::BalanceLossGrad>(Gpu{}),
      row<ops::RouterZLoss>(Gpu{}),
      row<ops::RouterZLossGrad>(Gpu{}),
      row<ops::SoftDispatch>(Gpu{}),
      row<ops::SoftDispatchGrad>(Gpu{}),
      row<ops::SoftCombine>(Gpu{}),
      row<ops::SoftCombineGrad>(Gpu{}),
      row<ops::TwoLevelLogits>(Gpu{}),
      row<ops::TwoLevelLogitsGrad>(Gpu{}),
      row<ops::TakePart>(Gpu{}),
      row<ops::TakePartGrad>(Gpu{}),
      row<ops::Temper>(Gpu{}),
      row<ops::ChunkBegins>(Gpu{}),
      row<ops::Statistics>(Gpu{}),
      row<ops::TakeSample>(Gpu{}),
      row<ops::SampleChange>(Gpu{}),
      row<ops::SquaresAndDigests>(Gpu{}),
      row<ops::JoinDigests>(Gpu{}),
      row<optim::SumOfSquares>(Gpu{}),
      row<optim::SumOfPartials>(Gpu{}),
      row<optim::RootOfSum>(Gpu{}),
      row<optim::StepScalars>(Gpu{}),
      encoding_row<optim::AdamWUpdate>(Gpu{}),
      row<optim::AdamW8BitUpdate>(Gpu{}),
      row<optim::AdafactorUpdate>(Gpu{}),
      row<optim::AdafactorVectorUpdate>(Gpu{}),
      row<optim::AdoptUpdate>(Gpu{}),
      row<optim::LionUpdate>(Gpu{}),
      row<optim::MuonUpdate>(Gpu{}),
      row<optim::RouterBiasUpdate>(Gpu{}),
      row<optim::RowSquares>(Gpu{}),
      row<optim::ClipRows>(Gpu{}),
  };
  return kTable;
}

std::span<const Binding> gpu_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> all;
    for (const graph::OpDef* const op : graph::all_ops())
      all.push_back({op, [op](const BindRequest&) -> BoundKernel { not_yet(op->name); }});
    return with_fallback(gpu_kernels(), all);
  }();
  return kTable;
}

}  // namespace strata::device
