#include "ops/expert_bias/expert_bias.h"

#include "ops/experts/gpu.h"

namespace strata::device {
namespace {

template <typename Op>
gpu::ExpertBiasArgs bias_sizes(const Bind<Op>& node, const graph::Value& rows) {
  gpu::ExpertBiasArgs args{};
  args.rows = rows.shape[0];
  args.columns = rows.shape[1];
  args.count = static_cast<int32_t>(ops::slots_of(node));
  args.experts = static_cast<int32_t>(node.attrs.experts);
  args.per_token = static_cast<int32_t>(node.in.ids->shape[1]);
  args.token_count = static_cast<int32_t>(ops::tokens_of(node));
  return args;
}
template <typename Op>
gpu::ExpertBiasArgs placed(gpu::ExpertBiasArgs args, const Operands<Op>& at) {
  args.ids = at.in.ids;
  args.token_offsets = at.in.offsets;
  return args;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertBias>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel([sizes = bias_sizes(node, x),
                      kernel = gpu::expert_bias(x.dtype, x.shape[0])](const Operands<ops::ExpertBias>& at) {
    gpu::ExpertBiasArgs args = placed(sizes, at);
    args.y = at.out.y;
    args.x = at.in.x;
    args.weights = at.in.weights;
    args.bias = at.in.bias;
    start(at.launch, kernel, args);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertBiasGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  GpuScratch scratch;
  const GpuExpertLists lists(node, scratch);
  gpu::ExpertBiasArgs sizes = bias_sizes(node, dy);
  sizes.accumulate = node.adds.dbias ? 1 : 0;
  return node.kernel(
      [lists, sizes, kernel = gpu::expert_bias_gradient(dy.dtype, node.attrs.experts, dy.shape[1])](
          const Operands<ops::ExpertBiasGrad>& at) {
        const gpu::ExpertsSortArgs sorted = lists.sort(at.launch, at.in.ids, at.in.offsets, at.scratch);
        gpu::ExpertBiasArgs args = placed(sizes, at);
        args.dbias = at.out.dbias;
        args.x = at.in.dy;
        args.weights = at.in.weights;
        args.slots = sorted.slots;
        args.tokens = sorted.tokens;
        args.offsets = sorted.offsets;
        start(at.launch, kernel, args);
      },
      scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertBiasGradWeights>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel([sizes = bias_sizes(node, dy),
                      kernel = gpu::expert_bias_weights_gradient(dy.dtype, ops::slots_of(node))](
                         const Operands<ops::ExpertBiasGradWeights>& at) {
    gpu::ExpertBiasArgs args = placed(sizes, at);
    args.dweights = at.out.dweights;
    args.x = at.in.dy;
    args.bias = at.in.bias;
    start(at.launch, kernel, args);
  });
}

}  // namespace strata::device
