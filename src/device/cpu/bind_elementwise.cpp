#include <algorithm>
#include <cstring>

#include "device/cpu/bind.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/norm.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

struct FlatPlan {
  int64_t n;
  DType dtype;
};

FlatPlan flat(const Value& value) {
  return {value.shape.elements(), value.dtype};
}

struct RowsPlan {
  int64_t rows, columns;
  DType dtype;
  bool accumulate;
};

// One row of a table of `rows`, for all rows of x.
struct RowPlan {
  RowsPlan x;
  int64_t rows, row;
};

struct ActivationPlan {
  ActivationKind kind;
  int64_t rows, columns;
  DType dtype;
};

ActivationPlan activation_plan(const BindRequest& request, const Value& rows) {
  return {static_cast<ActivationKind>(request.view.attrs().integer("kind")), rows.shape[0],
          rows.shape.rank() == 2 ? rows.shape[1] : 1, rows.dtype};
}

struct NormPlan {
  cpu::NormShape shape;
  bool accumulate;
};

NormPlan norm_plan(const BindRequest& request, const Value& rows, bool accumulate = false) {
  return {{.rows = rows.shape[0],
           .dim = rows.shape[1],
           .eps = static_cast<float>(request.view.attrs().real("eps")),
           .dtype = rows.dtype},
          accumulate};
}

NormPlan rms_plan(const BindRequest& request, const Value& rows) {
  NormPlan plan = norm_plan(request, rows);
  plan.shape.weight_offset = static_cast<float>(request.view.attrs().real("weight_offset"));
  return plan;
}

struct EmbeddingPlan {
  cpu::EmbeddingShape shape;
  bool accumulate;
};

}  // namespace

// (a, b) → sum
BoundKernel add(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<FlatPlan>(plan);
        cpu::add(p[2], p[0], p[1], call.n, call.dtype);
      },
      flat(request.view.in(0)));
}

// (tokens, table, positions?, position table?) → x
BoundKernel embedding(const BindRequest& request) {
  const NodeView& view = request.view;
  EmbeddingPlan plan{{.rows = view.in(0).shape[0],
                      .dim = view.in(1).shape[1],
                      .vocab = view.in(1).shape[0],
                      .positions = view.has(3) ? view.in(3).shape[0] : 0,
                      .dtype = view.out(0).dtype,
                      .scale = static_cast<float>(view.attrs().real("scale"))},
                     false};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::embedding_forward(plan_of<EmbeddingPlan>(held).shape, p[4], i32(p[0]), f32(p[1]), f32(p[3]),
                               i32(p[2]));
      },
      plan);
}

// (dy, ids) → dtable
BoundKernel embedding_grad(const BindRequest& request) {
  const NodeView& view = request.view;
  EmbeddingPlan plan{{.rows = view.in(1).shape[0],
                      .dim = view.in(0).shape[1],
                      .vocab = view.out(0).shape[0],
                      .dtype = view.in(0).dtype,
                      .scale = static_cast<float>(view.attrs().real("scale")),
                      .padding = view.attrs().integer("padding_id")},
                     request.accumulate[0]};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<EmbeddingPlan>(held);
        cpu::embedding_backward(call.shape, f32(p[2]), p[0], i32(p[1]), call.accumulate);
      },
      plan);
}

// (x, w, residual?) → y, rstd, h?
BoundKernel rms_norm(const BindRequest& request) {
  const bool residual = request.view.has(2);
  const Kernel with = [](Launch&, void* plan, std::byte* const* p) {
    cpu::rms_norm_forward(plan_of<NormPlan>(plan).shape, p[3], p[5], f32(p[4]), p[0], p[2], f32(p[1]));
  };
  const Kernel without = [](Launch&, void* plan, std::byte* const* p) {
    cpu::rms_norm_forward(plan_of<NormPlan>(plan).shape, p[3], nullptr, f32(p[4]), p[0], nullptr, f32(p[1]));
  };
  return bound(residual ? with : without, rms_plan(request, request.view.in(0)));
}

// (dy, h, rstd, w, dh?) → dx
BoundKernel rms_norm_grad_input(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::rms_norm_backward_input(plan_of<NormPlan>(plan).shape, p[5], p[0], p[1], f32(p[2]), f32(p[3]),
                                     p[4]);
      },
      rms_plan(request, request.view.in(1)));
}

// (dy, h, rstd) → dw
BoundKernel rms_norm_grad_weight(const BindRequest& request) {
  NormPlan plan = norm_plan(request, request.view.in(1), request.accumulate[0]);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<NormPlan>(held);
        cpu::rms_norm_backward_weight(call.shape, f32(p[3]), p[0], p[1], f32(p[2]), call.accumulate, p[4]);
      },
      plan, cpu::rms_norm_weight_scratch_bytes(plan.shape));
}

// (x, w, b, residual?) → y, mean, rstd, h?
BoundKernel layer_norm(const BindRequest& request) {
  const bool residual = request.view.has(3);
  const Kernel with = [](Launch&, void* plan, std::byte* const* p) {
    cpu::layer_norm_forward(plan_of<NormPlan>(plan).shape, p[4], p[7], f32(p[5]), f32(p[6]), p[0], p[3],
                            f32(p[1]), f32(p[2]));
  };
  const Kernel without = [](Launch&, void* plan, std::byte* const* p) {
    cpu::layer_norm_forward(plan_of<NormPlan>(plan).shape, p[4], nullptr, f32(p[5]), f32(p[6]), p[0], nullptr,
                            f32(p[1]), f32(p[2]));
  };
  return bound(residual ? with : without, norm_plan(request, request.view.in(0)));
}

// (dy, h, mean, rstd, w, dh?) → dx
BoundKernel layer_norm_grad_input(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::layer_norm_backward_input(plan_of<NormPlan>(plan).shape, p[6], p[0], p[1], f32(p[2]), f32(p[3]),
                                       f32(p[4]), p[5]);
      },
      norm_plan(request, request.view.in(1)));
}

// (dy, h, mean, rstd) → dw, db
BoundKernel layer_norm_grad_weight(const BindRequest& request) {
  NormPlan plan = norm_plan(request, request.view.in(1), request.accumulate[0]);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<NormPlan>(held);
        cpu::layer_norm_backward_weight(call.shape, f32(p[4]), f32(p[5]), p[0], p[1], f32(p[2]), f32(p[3]),
                                        call.accumulate, p[6]);
      },
      plan, cpu::layer_norm_weight_scratch_bytes(plan.shape));
}

// (gate_up) → y
BoundKernel gated(const BindRequest& request) {
  const Value& y = request.view.out(0);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::gated_forward(call.kind, call.rows, call.columns, p[1], p[0], call.dtype);
      },
      activation_plan(request, y));
}

// (dy, gate_up) → d_gate_up
BoundKernel gated_grad(const BindRequest& request) {
  const Value& dy = request.view.in(0);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::gated_backward(call.kind, call.rows, call.columns, p[2], p[0], p[1], call.dtype);
      },
      activation_plan(request, dy));
}

// (x) → y
BoundKernel activation(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::activation_forward(call.kind, call.rows * call.columns, p[1], p[0], call.dtype);
      },
      activation_plan(request, request.view.in(0)));
}

// (dy, x) → dx
BoundKernel activation_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::activation_backward(call.kind, call.rows * call.columns, p[2], p[0], p[1], call.dtype);
      },
      activation_plan(request, request.view.in(0)));
}

// (dy) → sums
BoundKernel column_sums(const BindRequest& request) {
  const Value& dy = request.view.in(0);
  const RowsPlan plan{dy.shape[0], dy.shape[1], dy.dtype, request.accumulate[0]};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<RowsPlan>(held);
        cpu::column_sums(call.rows, call.columns, call.columns, f32(p[1]), p[0], call.dtype, call.accumulate,
                         p[2]);
      },
      plan, cpu::column_sums_scratch_bytes(plan.rows, plan.columns));
}

// (x) → y
BoundKernel scale(const BindRequest& request) {
  struct Plan {
    FlatPlan flat;
    float factor;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        cpu::scale(p[1], p[0], plan.factor, plan.flat.n, plan.flat.dtype);
      },
      Plan{flat(request.view.in(0)), static_cast<float>(request.view.attrs().real("factor"))});
}

// (x, table) → y
BoundKernel add_row(const BindRequest& request) {
  const Value& x = request.view.in(0);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowPlan>(held);
        cpu::add_row(p[2], p[0], f32(p[1]) + plan.row * plan.x.columns, plan.x.rows, plan.x.columns,
                     plan.x.dtype);
      },
      RowPlan{{x.shape[0], x.shape[1], x.dtype, false}, 0, request.view.attrs().integer("row")});
}

// (dy) → dtable
BoundKernel add_row_grad(const BindRequest& request) {
  const Value& dy = request.view.in(0);
  const auto& attrs = request.view.attrs();
  const RowPlan plan{{dy.shape[0], dy.shape[1], dy.dtype, request.accumulate[0]},
                     attrs.integer("rows"),
                     attrs.integer("row")};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<RowPlan>(held);
        const RowsPlan& x = call.x;
        if (!x.accumulate) cpu::fill_zero(p[1], call.rows * x.columns * int64_t{sizeof(float)});
        cpu::column_sums(x.rows, x.columns, x.columns, f32(p[1]) + call.row * x.columns, p[0], x.dtype,
                         x.accumulate, p[2]);
      },
      plan, cpu::column_sums_scratch_bytes(dy.shape[0], dy.shape[1]));
}

// () → values
BoundKernel constant(const BindRequest& request) {
  struct Plan {
    int64_t elements;
    float number;
  };
  const auto& attrs = request.view.attrs();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        std::fill_n(f32(p[0]), plan.elements, plan.number);
      },
      Plan{attrs.integer("elements"), static_cast<float>(attrs.real("number"))});
}

// (x, index) → row
BoundKernel take_row(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto bytes = static_cast<size_t>(plan_of<FlatPlan>(plan).n);
        std::memcpy(p[2], p[0] + static_cast<size_t>(*i32(p[1])) * bytes, bytes);
      },
      FlatPlan{request.view.out(0).bytes(), DType::kU8});
}

}  // namespace strata::device::cpu_bind
