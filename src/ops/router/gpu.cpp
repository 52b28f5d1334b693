#include "ops/router/router.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {
namespace {

int32_t is_sigmoid(ops::RouteAttrs::Score score) {
  return score == ops::RouteAttrs::Score::kSigmoid ? 1 : 0;
}

template <typename Op>
gpu::RouteArgs route_sizes(const Bind<Op>& node) {
  const ops::RouteAttrs& attrs = node.attrs;
  gpu::RouteArgs args{};
  args.tokens = static_cast<int32_t>(node.in.logits->shape[0]);
  args.experts = static_cast<int32_t>(node.in.logits->shape[1]);
  args.k = static_cast<int32_t>(attrs.k);
  args.sigmoid = is_sigmoid(attrs.score);
  args.normalize = attrs.normalize ? 1 : 0;
  args.balanced = attrs.force_balanced ? 1 : 0;
  args.groups = static_cast<int32_t>(attrs.groups);
  args.kept_groups = static_cast<int32_t>(attrs.kept_groups);
  args.group_score = static_cast<int32_t>(attrs.group_score);
  args.stream = static_cast<uint32_t>(attrs.hash_stream);
  args.normalize_eps = static_cast<float>(attrs.normalize_eps);
  args.scale = static_cast<float>(attrs.scale);
  return args;
}

// `groups`: a value with a row a group.
template <typename Op>
gpu::RouterSumsArgs sums_sizes(const Bind<Op>& node, const graph::Value& groups) {
  const Shape& logits = node.in.logits->shape;
  gpu::RouterSumsArgs args{};
  args.groups = static_cast<int32_t>(groups.shape[0]);
  args.rows = static_cast<int32_t>(logits[0] / groups.shape[0]);
  args.experts = static_cast<int32_t>(logits[1]);
  args.sigmoid = is_sigmoid(node.attrs.score);
  args.sequence = static_cast<int32_t>(node.attrs.idle.sequence);
  args.idle = static_cast<int32_t>(node.attrs.idle.count);
  return args;
}

template <typename Op>
gpu::BalanceArgs balance_sizes(const Bind<Op>& node) {
  const ops::BalanceLossAttrs& attrs = node.attrs;
  const Shape& counts = node.in.counts->shape;
  gpu::BalanceArgs args{};
  args.coefficient = attrs.coefficient;
  args.groups = static_cast<int32_t>(node.in.targets->shape.elements() / attrs.rows);
  args.rows = static_cast<int32_t>(attrs.rows);
  args.tokens = static_cast<int32_t>(attrs.tokens);
  args.experts = static_cast<int32_t>(counts[1]);
  args.k = static_cast<int32_t>(attrs.k);
  args.same = counts[0] == 1 ? 1 : 0;
  return args;
}

template <typename Op>
gpu::RouterZArgs z_sizes(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  const int64_t rows = node.attrs.rows, targets = node.in.targets->shape.elements();
  gpu::RouterZArgs args{};
  args.coefficient = node.attrs.coefficient;
  args.tokens = static_cast<int32_t>(logits[0]);
  args.experts = static_cast<int32_t>(logits[1]);
  args.rows = static_cast<int32_t>(rows);
  args.targets_of_sequence = rows > 0 ? static_cast<int32_t>(targets / (logits[0] / rows)) : 0;
  return args;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Cast>& node) {
  const graph::Value &x = *node.in.x, &to = *node.out.cast;
  if (x.dtype == to.dtype) {
    return node.kernel([bytes = x.bytes()](const Operands<ops::Cast>& at) {
      gpu_queue(at.launch).copy(at.out.cast, at.in.x, bytes);
    });
  }
  const GpuElements cast(to.dtype == DType::kBF16 ? "cast_bf16_f32" : "cast_f32_bf16", x);
  return node.kernel([cast](const Operands<ops::Cast>& at) { cast.run(at.launch, at.out.cast, at.in.x); });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::Route>& node) {
  const gpu::RouteArgs sizes = route_sizes(node);
  const bool by_groups = sizes.groups > 1 && sizes.balanced == 0 && !node.in.tokens;
  return node.kernel(
      [sizes, by_groups, kernel = gpu::router("route", sizes.tokens)](const Operands<ops::Route>& at) {
        gpu::RouteArgs args = sizes;
        args.logits = at.in.logits;
        args.bias = at.in.bias;
        args.hashed = at.in.tokens;
        args.ids = at.out.ids;
        args.weights = at.out.weights;
        if (by_groups) args.of_groups = reinterpret_cast<float*>(at.scratch);
        start(at.launch, kernel, args);
      },
      by_groups ? int64_t{sizes.tokens} * 2 * sizes.groups * size_of(DType::kF32) : 0);
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RouteGrad>& node) {
  const gpu::RouteArgs sizes = route_sizes(node);
  return node.kernel(
      [sizes, kernel = gpu::router("route_gradient", sizes.tokens)](const Operands<ops::RouteGrad>& at) {
        gpu::RouteArgs args = sizes;
        args.logits = at.in.logits;
        args.ids = const_cast<int32_t*>(at.in.ids);  // only read
        args.dweights = at.in.dweights;
        args.dlogits = at.out.dlogits;
        start(at.launch, kernel, args);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ScaleRows>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [rows = x.shape[0], columns = x.shape[1],
       kernel = gpu::scale_rows(x.dtype, x.shape[0], x.shape[1])](const Operands<ops::ScaleRows>& at) {
        start(at.launch, kernel,
              gpu::ScaleRowsArgs{.out = at.out.y,
                                 .dweights = nullptr,
                                 .dy = nullptr,
                                 .x = at.in.x,
                                 .weights = at.in.weights,
                                 .rows = rows,
                                 .columns = columns});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ScaleRowsGrad>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [rows = x.shape[0], columns = x.shape[1],
       kernel = gpu::scale_rows(x.dtype, x.shape[0], x.shape[1])](const Operands<ops::ScaleRowsGrad>& at) {
        start(at.launch, kernel,
              gpu::ScaleRowsArgs{.out = at.out.dx,
                                 .dweights = at.out.dweights,
                                 .dy = at.in.dy,
                                 .x = at.in.x,
                                 .weights = at.in.weights,
                                 .rows = rows,
                                 .columns = columns});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RouterSums>& node) {
  gpu::RouterSumsArgs sizes = sums_sizes(node, *node.out.probabilities);
  const gpu::RouterSumsPlan plan = gpu::router_sums(sizes.groups, sizes.rows, sizes.experts);
  sizes.k = static_cast<int32_t>(node.in.ids->shape[1]);
  sizes.part_count = static_cast<int32_t>(plan.part_count);
  return node.kernel(
      [sizes, plan](const Operands<ops::RouterSums>& at) {
        gpu::RouterSumsArgs args = sizes;
        args.parts = reinterpret_cast<float*>(at.scratch);
        args.probabilities = at.out.probabilities;
        args.counts = at.out.counts;
        args.logits = at.in.logits;
        args.ids = at.in.ids;
        start(at.launch, plan.parts, args);
        start(at.launch, plan.sum, args);
      },
      plan.parts_bytes);
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RouterSumsGrad>& node) {
  const gpu::RouterSumsArgs sizes = sums_sizes(node, *node.in.dprobabilities);
  return node.kernel([sizes, kernel = gpu::router_sums_gradient(node.in.logits->shape[0])](
                         const Operands<ops::RouterSumsGrad>& at) {
    gpu::RouterSumsArgs args = sizes;
    args.logits = at.in.logits;
    args.dprobabilities = at.in.dprobabilities;
    args.dlogits = at.out.dlogits;
    start(at.launch, kernel, args);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::BalanceLoss>& node) {
  gpu::BalanceArgs sizes = balance_sizes(node);
  sizes.accumulate = node.adds.sum ? 1 : 0;
  return node.kernel([sizes](const Operands<ops::BalanceLoss>& at) {
    gpu::BalanceArgs args = sizes;
    args.sum = at.out.sum;
    args.probabilities = at.in.probabilities;
    args.counts = at.in.counts;
    args.targets = at.in.targets;
    start(at.launch, gpu::balance_loss(), args);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::BalanceLossGrad>& node) {
  if (node.in.seed) not_yet("balance_loss_grad", "of a scaled loss");
  const gpu::BalanceArgs sizes = balance_sizes(node);
  return node.kernel(
      [sizes, kernel = gpu::balance_loss_gradient(sizes.groups)](const Operands<ops::BalanceLossGrad>& at) {
        gpu::BalanceArgs args = sizes;
        args.dprobabilities = at.out.dprobabilities;
        args.counts = at.in.counts;
        args.targets = at.in.targets;
        start(at.launch, kernel, args);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RouterZLoss>& node) {
  gpu::RouterZArgs sizes = z_sizes(node);
  const gpu::RouterZPlan plan = gpu::router_z_loss(sizes.tokens);
  sizes.part_count = static_cast<int32_t>(plan.part_count);
  sizes.accumulate = node.adds.sum ? 1 : 0;
  return node.kernel(
      [sizes, plan](const Operands<ops::RouterZLoss>& at) {
        gpu::RouterZArgs args = sizes;
        args.parts = reinterpret_cast<double*>(at.scratch);
        args.sum = at.out.sum;
        args.logits = at.in.logits;
        args.targets = at.in.targets;
        start(at.launch, plan.parts, args);
        start(at.launch, plan.sum, args);
      },
      plan.part_count * size_of(DType::kF64));
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RouterZLossGrad>& node) {
  if (node.in.seed) not_yet("router_z_loss_grad", "of a scaled loss");
  const gpu::RouterZArgs sizes = z_sizes(node);
  return node.kernel(
      [sizes, kernel = gpu::router_z_gradient(sizes.tokens)](const Operands<ops::RouterZLossGrad>& at) {
        gpu::RouterZArgs args = sizes;
        args.dlogits = at.out.dlogits;
        args.logits = at.in.logits;
        args.targets = at.in.targets;
        start(at.launch, kernel, args);
      });
}

}  // namespace strata::device
