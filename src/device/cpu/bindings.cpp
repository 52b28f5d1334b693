// The CPU's binding table.
#include <array>

#include "device/cpu/bind.h"
#include "device/cpu/bindings.h"
#include "graph/loss_seed.h"
#include "graph/sum.h"
#include "ops/clamp.h"
#include "ops/ops.h"
#include "optim/adamw.h"

namespace strata::device {

std::span<const Binding> cpu_bindings() {
  namespace b = cpu_bind;
  static const std::array kTable{
      Binding{&graph::kAdd, b::add},
      Binding{&ops::kEmbedding, b::embedding},
      Binding{&ops::kEmbeddingGrad, b::embedding_grad},
      Binding{&ops::kLinear, b::linear, b::linear_encodings},
      Binding{&ops::kLinearGradInput, b::linear_grad_input, b::linear_grad_input_encodings},
      Binding{&ops::kLinearGradWeight, b::linear_grad_weight},
      Binding{&ops::kColumnSums, b::column_sums},
      Binding{&ops::kPackWeight, b::pack_weight},
      Binding{&ops::kRmsNorm, b::rms_norm},
      Binding{&ops::kRmsNormGradInput, b::rms_norm_grad_input},
      Binding{&ops::kRmsNormGradWeight, b::rms_norm_grad_weight},
      Binding{&ops::kLayerNorm, b::layer_norm},
      Binding{&ops::kLayerNormGradInput, b::layer_norm_grad_input},
      Binding{&ops::kLayerNormGradWeight, b::layer_norm_grad_weight},
      Binding{&ops::kConstant, b::constant},
      Binding{&ops::kQkNorm, b::qk_norm},
      Binding{&ops::kQkNormGradInput, b::qk_norm_grad_input},
      Binding{&ops::kQkNormGradWeight, b::qk_norm_grad_weight},
      Binding{&ops::kRopeTable, b::rope_table},
      Binding{&ops::kRope, b::rope},
      Binding{&ops::kAttention, b::attention},
      Binding{&ops::kAttentionGrad, b::attention_grad},
      Binding{&ops::kCachedAttention, b::cached_attention},
      Binding{&ops::kCrossAttention, b::cross_attention},
      Binding{&ops::kCrossAttentionGrad, b::cross_attention_grad},
      Binding{&ops::kCachedCrossAttention, b::cached_cross_attention},
      Binding{&ops::kStoreCross, b::store_cross},
      Binding{&ops::kDocumentEnds, b::document_ends},
      Binding{&ops::kRelativeBias, b::relative_bias},
      Binding{&ops::kRelativeBiasGrad, b::relative_bias_grad},
      Binding{&ops::kScale, b::scale},
      Binding{&ops::kAddRow, b::add_row},
      Binding{&ops::kAddRowGrad, b::add_row_grad},
      Binding{&ops::kGated, b::gated},
      Binding{&ops::kGatedGrad, b::gated_grad},
      Binding{&ops::kActivation, b::activation},
      Binding{&ops::kActivationGrad, b::activation_grad},
      Binding{&ops::kLinearCrossEntropy, b::linear_cross_entropy, b::linear_cross_entropy_encodings},
      Binding{&ops::kLinearCrossEntropyTrain, b::linear_cross_entropy_train,
              b::linear_cross_entropy_train_encodings},
      Binding{&graph::kLossSeed, b::loss_seed},
      Binding{&ops::kSoftcap, b::softcap},
      Binding{&ops::kTakeRow, b::take_row},
      Binding{&optim::kSumOfSquares, b::sum_of_squares},
      Binding{&optim::kUpdateScalars, b::update_scalars},
      Binding{&optim::kRootOfSum, b::root_of_sum},
      Binding{&optim::kAdamW, b::adamw},
      Binding{&ops::kClamp, b::clamp},
      Binding{&ops::kClampGrad, b::clamp_grad},
  };
  return kTable;
}

}  // namespace strata::device
