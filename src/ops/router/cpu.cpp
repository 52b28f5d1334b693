#include "kernels/cpu/router.h"

#include "device/cpu/cpu.h"
#include "kernels/cpu/elementwise.h"
#include "ops/router/router.h"

namespace strata::device {
namespace {

cpu::RouterScore router_score(ops::RouteAttrs::Score score) {
  return score == ops::RouteAttrs::Score::kSigmoid ? cpu::RouterScore::kSigmoid : cpu::RouterScore::kSoftmax;
}

template <typename Op>
cpu::RouteShape route_shape(const Bind<Op>& node) {
  const ops::RouteAttrs& attrs = node.attrs;
  return {.tokens = node.in.logits->shape[0],
          .experts = node.in.logits->shape[1],
          .k = attrs.k,
          .score = router_score(attrs.score),
          .normalize = attrs.normalize,
          .normalize_eps = static_cast<float>(attrs.normalize_eps),
          .scale = static_cast<float>(attrs.scale),
          .groups = attrs.groups,
          .kept_groups = attrs.kept_groups,
          .group_score = static_cast<cpu::RouteShape::GroupScore>(attrs.group_score),
          .force_balanced = attrs.force_balanced,
          .hash_stream = attrs.hash_stream};
}

// `groups`: a value with a row a group.
template <typename Op>
cpu::RouterSumsShape sums_shape(const Bind<Op>& node, const graph::Value& groups, int64_t k) {
  const Shape& logits = node.in.logits->shape;
  return {.groups = groups.shape[0],
          .rows = logits[0] / groups.shape[0],
          .experts = logits[1],
          .k = k,
          .score = router_score(node.attrs.score),
          .sequence = node.attrs.idle.sequence,
          .idle = node.attrs.idle.count};
}

template <typename Op>
cpu::BalanceShape balance_shape(const Bind<Op>& node) {
  const ops::BalanceLossAttrs& attrs = node.attrs;
  const Shape& counts = node.in.counts->shape;
  return {.groups = node.in.targets->shape.elements() / attrs.rows,
          .rows = attrs.rows,
          .tokens = attrs.tokens,
          .experts = counts[1],
          .k = attrs.k,
          .coefficient = attrs.coefficient,
          .same_counts = counts[0] == 1};
}

template <typename Op>
cpu::RouterZShape z_shape(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  const int64_t rows = node.attrs.rows, targets = node.in.targets->shape.elements();
  return {.tokens = logits[0],
          .experts = logits[1],
          .coefficient = node.attrs.coefficient,
          .rows = rows,
          .targets = rows > 0 ? targets / (logits[0] / rows) : 0};
}

// Of seed · sum.
template <typename LossShape>
LossShape seeded(LossShape shape, const float* seed) {
  if (seed != nullptr) shape.coefficient *= static_cast<double>(*seed);
  return shape;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Cast>& node) {
  const graph::Value &x = *node.in.x, &to = *node.out.cast;
  return node.kernel([n = x.shape.elements(), from = x.dtype, to = to.dtype](const Operands<ops::Cast>& at) {
    cpu::cast(at.out.cast, to, at.in.x, from, n);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::Route>& node) {
  const cpu::RouteShape shape = route_shape(node);
  return node.kernel(
      [shape](const Operands<ops::Route>& at) {
        cpu::route(shape, at.out.ids, at.out.weights, at.in.logits, at.in.bias, at.in.tokens, at.scratch);
      },
      cpu::route_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RouteGrad>& node) {
  const cpu::RouteShape shape = route_shape(node);
  return node.kernel(
      [shape](const Operands<ops::RouteGrad>& at) {
        cpu::route_backward(shape, at.out.dlogits, at.in.dweights, at.in.logits, at.in.ids, at.scratch);
      },
      cpu::route_backward_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaleRows>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [rows = x.shape[0], columns = x.shape[1], dtype = x.dtype](const Operands<ops::ScaleRows>& at) {
        cpu::scale_rows(rows, columns, at.out.y, at.in.x, at.in.weights, dtype);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaleRowsGrad>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [rows = x.shape[0], columns = x.shape[1], dtype = x.dtype](const Operands<ops::ScaleRowsGrad>& at) {
        cpu::scale_rows_backward(rows, columns, at.out.dx, at.out.dweights, at.in.dy, at.in.x, at.in.weights,
                                 dtype);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RouterSums>& node) {
  const cpu::RouterSumsShape shape = sums_shape(node, *node.out.probabilities, node.in.ids->shape[1]);
  return node.kernel(
      [shape](const Operands<ops::RouterSums>& at) {
        cpu::router_sums(shape, at.out.probabilities, at.out.counts, at.in.logits, at.in.ids, at.scratch);
      },
      cpu::router_sums_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RouterSumsGrad>& node) {
  return node.kernel(
      [shape = sums_shape(node, *node.in.dprobabilities, 1)](const Operands<ops::RouterSumsGrad>& at) {
        cpu::router_sums_backward(shape, at.out.dlogits, at.in.dprobabilities, at.in.logits);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::BalanceLoss>& node) {
  return node.kernel(
      [shape = balance_shape(node), adds = node.adds.sum](const Operands<ops::BalanceLoss>& at) {
        cpu::balance_loss(shape, at.out.sum, at.in.probabilities, at.in.counts, at.in.targets, adds);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::BalanceLossGrad>& node) {
  return node.kernel([shape = balance_shape(node)](const Operands<ops::BalanceLossGrad>& at) {
    cpu::balance_loss_backward(seeded(shape, at.in.seed), at.out.dprobabilities, at.in.counts, at.in.targets);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RouterZLoss>& node) {
  const cpu::RouterZShape shape = z_shape(node);
  return node.kernel(
      [shape, adds = node.adds.sum](const Operands<ops::RouterZLoss>& at) {
        cpu::router_z_loss(shape, at.out.sum, at.in.logits, at.in.targets, adds, at.scratch);
      },
      cpu::router_z_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RouterZLossGrad>& node) {
  return node.kernel([shape = z_shape(node)](const Operands<ops::RouterZLossGrad>& at) {
    cpu::router_z_loss_backward(seeded(shape, at.in.seed), at.out.dlogits, at.in.logits, at.in.targets);
  });
}

}  // namespace strata::device
