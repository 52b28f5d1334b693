#include "device/described/bindings.h"

#include <algorithm>
#include <utility>

#include "device/encode.h"
#include "graph/loss_seed.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "hardware/precision.h"
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
namespace {

using graph::NodeView;
using graph::Value;

// Blocks of a device that each make a partial sum; a power of two near the processors of the chips in the catalogue.
constexpr int64_t kPartialSums = 128;

using Scratch = int64_t (*)(const NodeView& node);

int64_t no_scratch(const NodeView&) {
  return 0;
}
int64_t partial_sums(const NodeView& node) {
  return kPartialSums * node.out(0).shape.elements() * size_of(DType::kF32);
}
int64_t partial_sums_of_all(const NodeView& node) {
  int64_t elements = 0;
  for (int i = 0; i < static_cast<int>(node.node.outputs.size()); ++i)
    if (node.has_out(i)) elements += node.out(i).shape.elements();
  return kPartialSums * elements * size_of(DType::kF32);
}
// Rows are sorted by their ids, the second input, before they are added, so that no two are added at the same time:
// ids, their positions, and buffers to sort them.
int64_t sorted_rows(const NodeView& node) {
  return 4 * node.in(1).shape.elements() * size_of(DType::kI32);
}
// The gradient of queries in fp32, and the dot of output and its gradient for each row and head. Inputs begin
// with dout, out and lse; all queries together are as large as the output.
int64_t attention_grad(const NodeView& node) {
  return node.in(1).shape.elements() * size_of(DType::kF32) + node.in(2).bytes();
}
// The same, of queries by themselves: those of latents are wider than the output.
int64_t context_attention_grad(const NodeView& node) {
  return node.in(3).shape.elements() * size_of(DType::kF32) + node.in(2).bytes();
}
// The state before each chunk of every value head.
int64_t chunk_states(const NodeView& node) {
  const auto& attrs = node.attrs<ops::RecurrenceAttrs>();
  const Value& beta =
      node.in(node.has_out(1) ? 3 : 2);  // [rows, value heads], after the gradient if there is one
  const int64_t chunks = (beta.shape[0] + attrs.chunk - 1) / attrs.chunk;
  return chunks * beta.shape[1] * attrs.key_dim * attrs.value_dim * size_of(DType::kF32);
}
// The scores of the rows that each of kPartialSums blocks works on, against all keys: of sequences, or of a cache's entry
// [entries, capacity, D].
int64_t scores_of_rows(const NodeView& node) {
  constexpr int64_t kRowsOfBlock = 64;
  const int64_t keys = node.node.op == &ops::CachedSelectKeys::def
                           ? node.in(3).shape[1]
                           : node.attrs<ops::IndexerAttrs>().kv_length;
  return kPartialSums * kRowsOfBlock * keys * size_of(DType::kF32);
}
// The iterate x, x xᵀ, and the polynomial of that.
int64_t newton_schulz(const NodeView& node) {
  const Shape& shape = node.in(0).shape;
  const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  const int64_t least = std::min(rows, columns);
  return (rows * columns + 2 * least * least) * size_of(DType::kF32);
}

[[noreturn]] void cannot_run(Launch&, void*, std::byte* const*) {
  throw InternalError("a device that is only described runs nothing");
}

// A copy of each fp32 matrix in the order of its elements.
std::vector<WantedEncoding> bf16_copies(const NodeView& node, const hardware::DeviceSpec&) {
  std::vector<WantedEncoding> wanted;
  if (graph::compute_dtype(node) != name_of(DType::kBF16)) return wanted;
  for (int i = 0; i < static_cast<int>(node.node.inputs.size()); ++i) {
    if (!node.has(i)) continue;
    const Value& weight = node.in(i);
    if (weight.dtype != DType::kF32 || weight.shape.rank() < 2) continue;
    wanted.push_back({i, bf16_copy_of(weight), DType::kBF16});
  }
  return wanted;
}
bool writes_copy(const NodeView&, const Value&, const hardware::DeviceSpec&) {
  return true;
}

struct Bf16Weights {};
constexpr Bf16Weights bf16_weights;
struct WritesCopies {};
constexpr WritesCopies writes_copies;

template <typename Op>
Binding described(Scratch scratch) {
  return {&Op::def, [scratch](const BindRequest& request) -> BoundKernel {
            return {cannot_run, nullptr, scratch(request.view)};
          }};
}
template <typename Op>
Binding described(Scratch scratch, Bf16Weights) {
  Binding made = described<Op>(scratch);
  made.encodings = bf16_copies;
  return made;
}
template <typename Op>
Binding described(Scratch scratch, WritesCopies) {
  Binding made = described<Op>(scratch);
  made.writes = writes_copy;
  return made;
}

}  // namespace

std::span<const Binding> described_bindings() {
  static const std::vector<Binding> kTable = [] {
    std::vector<Binding> table{
        described<ops::Attention>(no_scratch),
        described<ops::AttentionGrad>(attention_grad),
        described<ops::CachedAttention>(no_scratch),
        described<ops::SinkGrad>(partial_sums),
        described<graph::Add>(no_scratch),
        described<graph::LossSeed>(no_scratch),
        described<graph::TakeShard>(no_scratch),
        described<ops::Activation>(no_scratch),
        described<ops::ActivationGrad>(no_scratch),
        described<ops::Gated>(no_scratch),
        described<ops::GatedGrad>(no_scratch),
        described<ops::CausalConvolution>(no_scratch),
        described<ops::CausalConvolutionGradInput>(no_scratch),
        described<ops::CausalConvolutionGradWeight>(partial_sums_of_all),
        described<ops::ConvolutionTails>(no_scratch),
        described<ops::ConvolutionTailsGrad>(no_scratch),
        described<ops::ShiftPieces>(no_scratch),
        described<ops::CachedConvolution>(no_scratch),
        described<ops::Clamp>(no_scratch),
        described<ops::ClampGrad>(no_scratch),
        described<ops::ClampedGated>(no_scratch),
        described<ops::ClampedGatedGrad>(no_scratch),
        described<ops::ContextAttention>(no_scratch),
        described<ops::ContextAttentionGrad>(context_attention_grad),
        described<ops::MergeAttention>(no_scratch),
        described<ops::SplitQkv>(no_scratch),
        described<ops::JoinQkv>(no_scratch),
        described<ops::CrossAttention>(no_scratch),
        described<ops::CrossAttentionGrad>(attention_grad),
        described<ops::CachedCrossAttention>(no_scratch),
        described<ops::StoreCross>(no_scratch),
        described<ops::DocumentEnds>(no_scratch),
        described<ops::SplitLatents>(no_scratch),
        described<ops::JoinLatents>(no_scratch),
        described<ops::LatentHeads>(no_scratch),
        described<ops::LatentHeadsGrad>(no_scratch),
        described<ops::LatentKeys>(no_scratch),
        described<ops::LatentKeysGrad>(no_scratch),
        described<ops::CachedLatentAttention>(no_scratch),
        described<ops::Recurrence>(chunk_states),
        described<ops::RecurrenceGrad>(chunk_states),
        described<ops::RecurrenceSkipGrad>(no_scratch),
        described<ops::RecurrenceMap>(no_scratch),
        described<ops::RecurrenceStateGrad>(no_scratch),
        described<ops::ComposeMaps>(no_scratch),
        described<ops::ComposeStateGrads>(no_scratch),
        described<ops::CachedRecurrence>(no_scratch),
        described<ops::SelectKeys>(scores_of_rows),
        described<ops::CachedSelectKeys>(scores_of_rows),
        described<ops::SparseAttention>(no_scratch),
        described<ops::SparseAttentionGrad>(context_attention_grad),
        described<ops::IndexerLoss>(partial_sums),
        described<ops::IndexerLossGrad>(no_scratch),
        described<ops::RelativeBias>(no_scratch),
        described<ops::RelativeBiasGrad>(partial_sums),
        described<ops::RopeTable>(no_scratch),
        described<ops::Rope>(no_scratch),
        described<ops::ShareHeads>(no_scratch),
        described<ops::ShareHeadsGrad>(no_scratch),
        described<ops::ChosenShare>(no_scratch),
        described<ops::Copy>(no_scratch),
        described<ops::TakePart>(no_scratch),
        described<ops::TakePartGrad>(no_scratch),
        described<ops::Temper>(no_scratch),
        described<ops::ChunkBegins>(no_scratch),
        described<ops::LimitExperts>(no_scratch),
        described<ops::WeightsOfKept>(no_scratch),
        described<ops::ExpertBias>(no_scratch),
        described<ops::ExpertBiasGrad>(no_scratch),
        described<ops::ExpertBiasGradWeights>(no_scratch),
        described<ops::OwnExperts>(no_scratch),
        described<ops::PlanDispatch>(no_scratch),
        described<ops::DispatchRows>(no_scratch),
        described<ops::CombineRows>(no_scratch),
        described<ops::CombineSlotGrads>(no_scratch),
        described<ops::RemainingTokens>(no_scratch),
        described<ops::ExpertRounds>(no_scratch),
        described<ops::ExpertsIn>(no_scratch, bf16_weights),
        described<ops::ExpertsInGradInput>(no_scratch, bf16_weights),
        described<ops::ExpertsInGradWeight>(no_scratch),
        described<ops::ExpertsOut>(no_scratch, bf16_weights),
        described<ops::ExpertsOutGradInput>(no_scratch, bf16_weights),
        described<ops::ExpertsOutGradWeight>(no_scratch),
        described<ops::ExpertCounts>(no_scratch),
        described<ops::RunningCounts>(no_scratch),
        described<ops::ExpertChoice>(no_scratch),
        described<ops::ExpertChoiceGrad>(no_scratch),
        described<ops::GatherRows>(no_scratch),
        described<ops::ScatterRows>(no_scratch),
        described<ops::Jitter>(no_scratch),
        described<ops::SamplePlaces>(no_scratch),
        described<ops::PairPlaces>(no_scratch),
        described<ops::Cast>(no_scratch),
        described<ops::Route>(no_scratch),
        described<ops::RouteGrad>(no_scratch),
        described<ops::ScaleRows>(no_scratch),
        described<ops::ScaleRowsGrad>(no_scratch),
        described<ops::RouterSums>(no_scratch),
        described<ops::RouterSumsGrad>(no_scratch),
        described<ops::BalanceLoss>(no_scratch),
        described<ops::BalanceLossGrad>(no_scratch),
        described<ops::RouterZLoss>(no_scratch),
        described<ops::RouterZLossGrad>(no_scratch),
        described<ops::SoftDispatch>(no_scratch),
        described<ops::SoftDispatchGrad>(no_scratch),
        described<ops::SoftCombine>(no_scratch),
        described<ops::SoftCombineGrad>(no_scratch),
        described<ops::TwoLevelLogits>(no_scratch),
        described<ops::TwoLevelLogitsGrad>(no_scratch),
        described<ops::Statistics>(no_scratch),
        described<ops::TakeSample>(no_scratch),
        described<ops::SampleChange>(no_scratch),
        described<ops::SquaresAndDigests>(partial_sums),
        described<ops::JoinDigests>(no_scratch),
        described<optim::SumOfSquares>(partial_sums),
        described<optim::SumOfPartials>(no_scratch),
        described<optim::RootOfSum>(no_scratch),
        described<optim::StepScalars>(no_scratch),
        described<optim::RowSquares>(no_scratch),
        described<optim::ClipRows>(no_scratch),
        described<optim::ScoreFactors>(no_scratch),
        described<optim::ScaleRows>(no_scratch),
        described<optim::ScoreSummary>(no_scratch),
        described<optim::RouterBiasUpdate>(no_scratch),
        described<optim::AdamWUpdate>(no_scratch, writes_copies),
        described<optim::StoredUpdate>(no_scratch),
        described<optim::FollowHistory>(no_scratch),
        described<optim::MuonUpdate>(newton_schulz),
        described<optim::MuonMomentum>(no_scratch),
        described<optim::NewtonSchulz>(newton_schulz),
        described<optim::MuonApply>(no_scratch),
        described<optim::LionUpdate>(no_scratch),
        described<optim::AdafactorUpdate>(partial_sums),
        described<optim::AdafactorVectorUpdate>(no_scratch),
        described<optim::AdafactorSums>(partial_sums),
        described<optim::AdafactorColumns>(no_scratch),
        described<optim::AdafactorApply>(no_scratch),
        described<optim::AdamW8BitUpdate>(no_scratch),
        described<optim::AdamW8BitLargest>(no_scratch),
        described<optim::AdamW8BitShard>(no_scratch),
        described<ops::Constant>(no_scratch),
        described<ops::Scale>(no_scratch),
        described<ops::ScaleParts>(no_scratch),
        described<ops::AddRow>(no_scratch),
        described<ops::AddRowGrad>(partial_sums),
        described<ops::Embedding>(no_scratch),
        described<ops::EmbeddingGrad>(sorted_rows),
        described<ops::Linear>(no_scratch, bf16_weights),
        described<ops::LinearGradInput>(no_scratch, bf16_weights),
        described<ops::LinearGradWeight>(no_scratch),
        described<ops::ColumnSums>(partial_sums),
        described<ops::PackWeight>(no_scratch),
        described<ops::LinearCrossEntropy>(no_scratch, bf16_weights),
        described<ops::LinearCrossEntropyTrain>(no_scratch, bf16_weights),
        described<ops::CrossEntropyStatistics>(no_scratch, bf16_weights),
        described<ops::CrossEntropyLoss>(no_scratch),
        described<ops::CrossEntropyLossGrad>(no_scratch),
        described<ops::CrossEntropyGradInput>(no_scratch, bf16_weights),
        described<ops::CrossEntropyGradWeight>(no_scratch, bf16_weights),
        described<ops::CrossEntropyGrad>(no_scratch, bf16_weights),
        described<ops::RmsNorm>(no_scratch),
        described<ops::RmsNormGradInput>(no_scratch),
        described<ops::RmsNormGradWeight>(partial_sums),
        described<ops::LayerNorm>(no_scratch),
        described<ops::LayerNormGradInput>(no_scratch),
        described<ops::LayerNormGradWeight>(partial_sums),
        described<ops::TargetsAhead>(no_scratch),
        described<ops::Quantize>(no_scratch),
        described<ops::GreatestMagnitudes>(no_scratch),
        described<ops::GreatestOfRanks>(no_scratch),
        described<ops::ScaledLinear>(no_scratch),
        described<ops::ScaledLinearGradInput>(no_scratch),
        described<ops::ScaledLinearGradWeight>(no_scratch),
        described<ops::ScaledExpertsIn>(no_scratch),
        described<ops::ScaledExpertsInGradInput>(no_scratch),
        described<ops::ScaledExpertsInGradWeight>(no_scratch),
        described<ops::ScaledExpertsOut>(no_scratch),
        described<ops::ScaledExpertsOutGradInput>(no_scratch),
        described<ops::ScaledExpertsOutGradWeight>(no_scratch),
        described<ops::Gate>(no_scratch),
        described<ops::GateGrad>(no_scratch),
        described<ops::GatedNorm>(no_scratch),
        described<ops::GatedNormGradInput>(no_scratch),
        described<ops::GatedNormGradWeight>(partial_sums),
        described<ops::GatedMeans>(no_scratch),
        described<ops::QkNorm>(no_scratch),
        described<ops::QkNormGradInput>(no_scratch),
        described<ops::QkNormGradWeight>(partial_sums),
        described<ops::QkMeans>(no_scratch),
        described<ops::RecurrenceGates>(no_scratch),
        described<ops::RecurrenceGatesGradInput>(no_scratch),
        described<ops::RecurrenceGatesGradWeight>(partial_sums_of_all),
        described<ops::TakeRow>(no_scratch),
        described<ops::Softcap>(no_scratch),
        described<ops::VocabStart>(no_scratch),
        described<optim::AdoptUpdate>(no_scratch),
    };
    return table;
  }();
  return kTable;
}

Target described_target(hardware::DeviceSpec spec) {
  return {std::move(spec), described_bindings()};
}

}  // namespace strata::device
