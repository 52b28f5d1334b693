#include "ops/expert_choice/expert_choice.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {
namespace {

template <typename Op>
gpu::ExpertChoiceArgs choice_sizes(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  gpu::ExpertChoiceArgs args{};
  args.groups = static_cast<int32_t>(logits[0] / node.attrs.rows);
  args.rows = static_cast<int32_t>(node.attrs.rows);
  args.experts = static_cast<int32_t>(logits[1]);
  args.capacity = static_cast<int32_t>(node.attrs.capacity);
  args.scale = static_cast<float>(node.attrs.scale);
  return args;
}
template <typename Op>
gpu::ScoresArgs scores_sizes(const Bind<Op>& node) {
  gpu::ScoresArgs args{};
  args.tokens = static_cast<int32_t>(node.in.logits->shape[0]);
  args.experts = static_cast<int32_t>(node.in.logits->shape[1]);
  args.sigmoid = node.attrs.score == ops::RouteAttrs::Score::kSigmoid ? 1 : 0;
  args.rows = static_cast<int32_t>(node.attrs.rows);
  return args;
}

template <typename Op>
BoundKernel bind_group_rows(const Bind<Op>& node, const std::string& part) {
  const graph::Value& y = *node.out.y;
  const gpu::GroupRowsArgs sizes{.y = nullptr,
                                 .x = nullptr,
                                 .tokens = nullptr,
                                 .rows = node.attrs.rows,
                                 .slots = node.attrs.slots,
                                 .columns = y.shape[1]};
  return node.kernel([sizes, kernel = gpu::group_rows(part, y.dtype, y.shape[0])](const Operands<Op>& at) {
    gpu::GroupRowsArgs args = sizes;
    args.y = at.out.y;
    args.x = at.in.x;
    args.tokens = at.in.tokens;
    start(at.launch, kernel, args);
  });
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertChoice>& node) {
  const gpu::ScoresArgs scores = scores_sizes(node);
  const gpu::ExpertChoiceArgs choice = choice_sizes(node);
  return node.kernel(
      [scores, choice](const Operands<ops::ExpertChoice>& at) {
        gpu::ScoresArgs first = scores;
        first.scores = reinterpret_cast<float*>(at.scratch);
        first.logits = at.in.logits;
        start(at.launch, gpu::router("router_scores", first.tokens), first);
        gpu::ExpertChoiceArgs args = choice;
        args.tokens = at.out.tokens;
        args.experts_out = at.out.experts;
        args.weights = at.out.weights;
        args.scores = first.scores;
        start(at.launch, gpu::expert_choice(args.groups, args.experts), args);
      },
      node.in.logits->bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ExpertChoiceGrad>& node) {
  gpu::ScoresArgs scores = scores_sizes(node);
  scores.rows = 0;
  const gpu::ExpertChoiceArgs choice = choice_sizes(node);
  const int64_t bytes = node.in.logits->bytes();
  return node.kernel(
      [scores, choice, bytes,
       slots = node.in.tokens->shape.elements()](const Operands<ops::ExpertChoiceGrad>& at) {
        gpu::ExpertChoiceArgs args = choice;
        args.tokens = const_cast<int32_t*>(at.in.tokens);  // only read
        args.dweights = at.in.dweights;
        args.dscores = reinterpret_cast<float*>(at.scratch);
        gpu_queue(at.launch).clear(at.scratch, bytes);
        start(at.launch, gpu::expert_choice_gradient(slots), args);
        gpu::ScoresArgs then = scores;
        then.dlogits = at.out.dlogits;
        then.dscores = args.dscores;
        then.logits = at.in.logits;
        start(at.launch, gpu::router("scores_gradient", then.tokens), then);
      },
      bytes);
}

template <>
BoundKernel bind(Gpu, const Bind<ops::GatherRows>& node) {
  return bind_group_rows(node, "gather_rows");
}
template <>
BoundKernel bind(Gpu, const Bind<ops::ScatterRows>& node) {
  return bind_group_rows(node, "scatter_rows");
}

}  // namespace strata::device
