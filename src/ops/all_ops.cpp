#include "ops/clamp.h"
#include "ops/ops.h"

namespace strata::ops {

std::span<const OpDef* const> all_ops() {
  static const OpDef* const kAll[] = {
      &kEmbedding,
      &kEmbeddingGrad,
      &kLinear,
      &kLinearGradInput,
      &kLinearGradWeight,
      &kColumnSums,
      &kPackWeight,
      &kRmsNorm,
      &kRmsNormGradInput,
      &kRmsNormGradWeight,
      &kLayerNorm,
      &kLayerNormGradInput,
      &kLayerNormGradWeight,
      &kQkNorm,
      &kQkNormGradInput,
      &kQkNormGradWeight,
      &kConstant,
      &kRopeTable,
      &kRope,
      &kAttention,
      &kAttentionGrad,
      &kCachedAttention,
      &kCrossAttention,
      &kCrossAttentionGrad,
      &kCachedCrossAttention,
      &kStoreCross,
      &kDocumentEnds,
      &kRelativeBias,
      &kRelativeBiasGrad,
      &kGated,
      &kGatedGrad,
      &kActivation,
      &kActivationGrad,
      &kScale,
      &kAddRow,
      &kAddRowGrad,
      &kLinearCrossEntropy,
      &kLinearCrossEntropyTrain,
      &kSoftcap,
      &kTakeRow,
      &kClamp,
      &kClampGrad,
  };
  return kAll;
}

}  // namespace strata::ops
