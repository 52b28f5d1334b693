#include "device/cpu/bind.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/router.h"
#include "ops/router.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

cpu::RouterScore score_of(ops::RouteAttrs::Score score) {
  return score == ops::RouteAttrs::Score::kSigmoid ? cpu::RouterScore::kSigmoid : cpu::RouterScore::kSoftmax;
}

double* f64(std::byte* pointer) {
  return reinterpret_cast<double*>(pointer);
}

// (x) → y
BoundKernel cast(const BindRequest& request) {
  struct Plan {
    int64_t n;
    DType from, to;
  };
  const Value &x = request.view.in(ops::Cast::kX), &y = request.view.out(ops::Cast::kY);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        cpu::cast(p[1], plan.to, p[0], plan.from, plan.n);
      },
      Plan{x.shape.elements(), x.dtype, y.dtype});
}

cpu::RouteShape route_shape(const NodeView& view, const Value& logits) {
  const auto& attrs = view.attrs<ops::RouteAttrs>();
  return {.tokens = logits.shape[0],
          .experts = logits.shape[1],
          .k = attrs.k,
          .score = score_of(attrs.score),
          .normalize = attrs.normalize,
          .normalize_eps = static_cast<float>(attrs.normalize_eps),
          .scale = static_cast<float>(attrs.scale),
          .groups = attrs.groups,
          .kept_groups = attrs.kept_groups,
          .group_score = static_cast<cpu::RouteShape::GroupScore>(attrs.group_score),
          .force_balanced = attrs.force_balanced,
          .hash_stream = attrs.hash_stream};
}

// (logits, bias?, tokens?) → ids, weights
BoundKernel route(const BindRequest& request) {
  const cpu::RouteShape shape = route_shape(request.view, request.view.in(ops::Route::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::route(plan_of<cpu::RouteShape>(plan), i32(p[3]), f32(p[4]), f32(p[0]), f32(p[1]), i32(p[2]),
                   p[5]);
      },
      shape, cpu::route_scratch_bytes(shape));
}

// (dweights, logits, ids) → dlogits
BoundKernel route_grad(const BindRequest& request) {
  const cpu::RouteShape shape = route_shape(request.view, request.view.in(ops::RouteGrad::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::route_backward(plan_of<cpu::RouteShape>(plan), f32(p[3]), f32(p[0]), f32(p[1]), i32(p[2]), p[4]);
      },
      shape, cpu::route_backward_scratch_bytes(shape));
}

struct RowsPlan {
  int64_t rows, columns;
  DType dtype;
};
RowsPlan rows_plan(const Value& x) {
  return {x.shape[0], x.shape[1], x.dtype};
}

// (x, weights) → y
BoundKernel scale_rows(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowsPlan>(held);
        cpu::scale_rows(plan.rows, plan.columns, p[2], p[0], f32(p[1]), plan.dtype);
      },
      rows_plan(request.view.in(ops::ScaleRows::kX)));
}

// (dy, x, weights) → dx, dweights
BoundKernel scale_rows_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowsPlan>(held);
        cpu::scale_rows_backward(plan.rows, plan.columns, p[3], f32(p[4]), p[0], p[1], f32(p[2]), plan.dtype);
      },
      rows_plan(request.view.in(ops::ScaleRowsGrad::kX)));
}

// `groups`: a value with a row a group.
cpu::RouterSumsShape sums_shape(const NodeView& view, const Value& logits, const Value& groups, int64_t k) {
  return {.groups = groups.shape[0],
          .rows = logits.shape[0] / groups.shape[0],
          .experts = logits.shape[1],
          .k = k,
          .score = score_of(view.attrs<ops::RouterSumsAttrs>().score),
          .sequence = view.attrs<ops::RouterSumsAttrs>().idle.sequence,
          .idle = view.attrs<ops::RouterSumsAttrs>().idle.count};
}

// (logits, ids) → probabilities, counts
BoundKernel router_sums(const BindRequest& request) {
  using Op = ops::RouterSums;
  const NodeView& view = request.view;
  const auto shape =
      sums_shape(view, view.in(Op::kLogits), view.out(Op::kProbabilities), view.in(Op::kIds).shape[1]);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::router_sums(plan_of<cpu::RouterSumsShape>(plan), f32(p[2]), f32(p[3]), f32(p[0]), i32(p[1]),
                         p[4]);
      },
      shape, cpu::router_sums_scratch_bytes(shape));
}

// (dprobabilities, logits) → dlogits
BoundKernel router_sums_grad(const BindRequest& request) {
  using Op = ops::RouterSumsGrad;
  const NodeView& view = request.view;
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::router_sums_backward(plan_of<cpu::RouterSumsShape>(plan), f32(p[2]), f32(p[0]), f32(p[1]));
      },
      sums_shape(view, view.in(Op::kLogits), view.in(Op::kDprobabilities), 1));
}

struct BalancePlan {
  cpu::BalanceShape shape;
  bool accumulate;
};
BalancePlan balance_plan(const NodeView& view, const Value& counts, const Value& targets, bool accumulate) {
  const auto& attrs = view.attrs<ops::BalanceLossAttrs>();
  return {{.groups = targets.shape.elements() / attrs.rows,
           .rows = attrs.rows,
           .tokens = attrs.tokens,
           .experts = counts.shape[1],
           .k = attrs.k,
           .coefficient = attrs.coefficient,
           .same_counts = counts.shape[0] == 1},
          accumulate};
}

// (probabilities, counts, targets) → sum
BoundKernel balance_loss(const BindRequest& request) {
  using Op = ops::BalanceLoss;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<BalancePlan>(held);
        cpu::balance_loss(plan.shape, f64(p[3]), f32(p[0]), f32(p[1]), i32(p[2]), plan.accumulate);
      },
      balance_plan(request.view, request.view.in(Op::kCounts), request.view.in(Op::kTargets),
                   request.accumulate[Op::kSum]));
}

// (counts, targets) → dprobabilities
BoundKernel balance_loss_grad(const BindRequest& request) {
  using Op = ops::BalanceLossGrad;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::balance_loss_backward(plan_of<BalancePlan>(held).shape, f32(p[2]), f32(p[0]), i32(p[1]));
      },
      balance_plan(request.view, request.view.in(Op::kCounts), request.view.in(Op::kTargets), false));
}

struct ZPlan {
  cpu::RouterZShape shape;
  bool accumulate;
};
ZPlan z_plan(const BindRequest& request) {
  const Value& logits = request.view.in(ops::RouterZLoss::kLogits);
  const auto& attrs = request.view.attrs<ops::ZLossAttrs>();
  const int64_t targets = request.view.in(ops::RouterZLoss::kTargets).shape.elements();
  return {{.tokens = logits.shape[0],
           .experts = logits.shape[1],
           .coefficient = attrs.coefficient,
           .rows = attrs.rows,
           .targets = attrs.rows > 0 ? targets / (logits.shape[0] / attrs.rows) : 0},
          request.accumulate[0]};
}

// (logits, targets) → sum
BoundKernel router_z_loss(const BindRequest& request) {
  const ZPlan plan = z_plan(request);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<ZPlan>(held);
        cpu::router_z_loss(call.shape, f64(p[2]), f32(p[0]), i32(p[1]), call.accumulate, p[3]);
      },
      plan, cpu::router_z_scratch_bytes(plan.shape));
}

// (logits, targets) → dlogits
BoundKernel router_z_loss_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::router_z_loss_backward(plan_of<ZPlan>(held).shape, f32(p[2]), f32(p[0]), i32(p[1]));
      },
      z_plan(request));
}

}  // namespace

std::span<const Binding> router_bindings() {
  static const Binding kTable[] = {
      {&ops::kCast, cast},
      {&ops::kRoute, route},
      {&ops::kRouteGrad, route_grad},
      {&ops::kScaleRows, scale_rows},
      {&ops::kScaleRowsGrad, scale_rows_grad},
      {&ops::kRouterSums, router_sums},
      {&ops::kRouterSumsGrad, router_sums_grad},
      {&ops::kBalanceLoss, balance_loss},
      {&ops::kBalanceLossGrad, balance_loss_grad},
      {&ops::kRouterZLoss, router_z_loss},
      {&ops::kRouterZLossGrad, router_z_loss_grad},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
