// The table of plain kernels. All of them are called in one way: with the operands' types and places.
#include <array>

#include "device/plan.h"
#include "device/reference/bindings.h"
#include "graph/loss_seed.h"
#include "graph/sum.h"
#include "kernels/reference/call.h"
#include "ops/clamp.h"
#include "ops/ops.h"
#include "optim/adamw.h"

namespace strata::device {
namespace {

struct ReferencePlan {
  reference::Kernel kernel;
  reference::Call call;  // without places
};

reference::Array array_of(const graph::Value& value) {
  return {nullptr, value.dtype, value.shape, value.segments};
}

template <reference::Kernel kKernel>
BoundKernel plain(const BindRequest& request) {
  ReferencePlan plan{kKernel, {{}, {}, request.view.node.attrs}};
  const graph::Node& node = request.view.node;
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i)
    plan.call.in.push_back(request.view.has(i) ? array_of(request.view.in(i)) : reference::Array{});
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
    plan.call.out.push_back(request.view.has_out(o) ? array_of(request.view.out(o)) : reference::Array{});
    plan.call.out.back().accumulate = request.accumulate[static_cast<size_t>(o)];
  }
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& [kernel, shapes] = plan_of<ReferencePlan>(held);
        reference::Call call = shapes;
        for (reference::Array& in : call.in) in.data = *p++;
        for (reference::Array& out : call.out) out.data = *p++;
        kernel(call);
      },
      std::move(plan));
}

}  // namespace

std::span<const Binding> reference_bindings() {
  namespace r = reference;
  static const std::array kTable{
      Binding{&graph::kAdd, plain<r::add>},
      Binding{&ops::kEmbedding, plain<r::embedding>},
      Binding{&ops::kEmbeddingGrad, plain<r::embedding_grad>},
      Binding{&ops::kLinear, plain<r::linear>},
      Binding{&ops::kLinearGradInput, plain<r::linear_grad_input>},
      Binding{&ops::kLinearGradWeight, plain<r::linear_grad_weight>},
      Binding{&ops::kColumnSums, plain<r::column_sums>},
      Binding{&ops::kRmsNorm, plain<r::rms_norm>},
      Binding{&ops::kRmsNormGradInput, plain<r::rms_norm_grad_input>},
      Binding{&ops::kRmsNormGradWeight, plain<r::rms_norm_grad_weight>},
      Binding{&ops::kLayerNorm, plain<r::layer_norm>},
      Binding{&ops::kLayerNormGradInput, plain<r::layer_norm_grad_input>},
      Binding{&ops::kLayerNormGradWeight, plain<r::layer_norm_grad_weight>},
      Binding{&ops::kQkNorm, plain<r::qk_norm>},
      Binding{&ops::kQkNormGradInput, plain<r::qk_norm_grad_input>},
      Binding{&ops::kQkNormGradWeight, plain<r::qk_norm_grad_weight>},
      Binding{&ops::kRope, plain<r::rope>},
      Binding{&ops::kAttention, plain<r::attention>},
      Binding{&ops::kAttentionGrad, plain<r::attention_grad>},
      Binding{&ops::kCachedAttention, plain<r::cached_attention>},
      Binding{&ops::kCrossAttention, plain<r::cross_attention>},
      Binding{&ops::kCrossAttentionGrad, plain<r::cross_attention_grad>},
      Binding{&ops::kCachedCrossAttention, plain<r::cached_cross_attention>},
      Binding{&ops::kDocumentEnds, plain<r::document_ends>},
      Binding{&ops::kRelativeBias, plain<r::relative_bias>},
      Binding{&ops::kRelativeBiasGrad, plain<r::relative_bias_grad>},
      Binding{&ops::kScale, plain<r::scale>},
      Binding{&ops::kAddRow, plain<r::add_row>},
      Binding{&ops::kAddRowGrad, plain<r::add_row_grad>},
      Binding{&ops::kGated, plain<r::gated>},
      Binding{&ops::kGatedGrad, plain<r::gated_grad>},
      Binding{&ops::kActivation, plain<r::activation>},
      Binding{&ops::kActivationGrad, plain<r::activation_grad>},
      Binding{&graph::kLossSeed, plain<r::loss_seed>},
      Binding{&ops::kSoftcap, plain<r::softcap>},
      Binding{&ops::kLinearCrossEntropy, plain<r::linear_cross_entropy>},
      Binding{&ops::kLinearCrossEntropyTrain, plain<r::linear_cross_entropy_train>},
      Binding{&optim::kSumOfSquares, plain<r::sum_of_squares>},
      Binding{&optim::kAdamW, plain<r::adamw>},
      Binding{&ops::kClamp, plain<r::clamp>},
      Binding{&ops::kClampGrad, plain<r::clamp_grad>},
      Binding{&ops::kConstant, plain<r::constant>},
      Binding{&ops::kRopeTable, plain<r::rope_table>},
      Binding{&ops::kTakeRow, plain<r::take_row>},
      Binding{&ops::kStoreCross, plain<r::store_cross>},
      Binding{&optim::kUpdateScalars, plain<r::update_scalars>},
      Binding{&optim::kRootOfSum, plain<r::root_of_sum>},
  };
  return kTable;
}

}  // namespace strata::device
