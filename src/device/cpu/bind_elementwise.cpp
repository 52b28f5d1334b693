#include <algorithm>
#include <cstring>

#include "device/cpu/bind.h"
#include "graph/reshard.h"
#include "graph/sum.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/shard.h"
#include "ops/ops.h"
#include "ops/predict.h"

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
  return {request.view.attrs<ops::ActivationAttrs>().kind, rows.shape[0],
          rows.shape.rank() == 2 ? rows.shape[1] : 1, rows.dtype};
}

struct NormPlan {
  cpu::NormShape shape;
  bool accumulate;
};

NormPlan norm_plan(const Value& rows, double eps, double weight_offset = 0) {
  return {{.rows = rows.shape[0],
           .dim = rows.shape[1],
           .eps = static_cast<float>(eps),
           .dtype = rows.dtype,
           .weight_offset = static_cast<float>(weight_offset)},
          false};
}

NormPlan rms_plan(const BindRequest& request, const Value& rows) {
  const auto& attrs = request.view.attrs<ops::RmsNormAttrs>();
  return norm_plan(rows, attrs.eps, attrs.weight_offset);
}

NormPlan layer_plan(const BindRequest& request, const Value& rows) {
  return norm_plan(rows, request.view.attrs<ops::LayerNormAttrs>().eps);
}

struct EmbeddingPlan {
  cpu::EmbeddingShape shape;
  bool accumulate;
};

// (a, b) → sum
BoundKernel add(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<FlatPlan>(plan);
        cpu::add(p[2], p[0], p[1], call.n, call.dtype);
      },
      flat(request.view.in(0)));
}

int64_t parts_of(const NodeView& view, int vocab_start) {
  return view.has(vocab_start) ? view.in(vocab_start).shape[0] : 1;
}

// (tokens, table, positions?, position table?, vocab_start?) → x
BoundKernel embedding(const BindRequest& request) {
  const NodeView& view = request.view;
  EmbeddingPlan plan{
      {.rows = view.in(ops::Embedding::kTokens).shape[0],
       .dim = view.in(ops::Embedding::kTable).shape[1],
       .vocab = view.in(ops::Embedding::kTable).shape[0],
       .positions =
           view.has(ops::Embedding::kPositionTable) ? view.in(ops::Embedding::kPositionTable).shape[0] : 0,
       .dtype = view.out(ops::Embedding::kX).dtype,
       .scale = static_cast<float>(view.attrs<ops::EmbeddingAttrs>().scale),
       .parts = parts_of(view, ops::Embedding::kVocabStart)},
      false};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::embedding_forward(plan_of<EmbeddingPlan>(held).shape, p[5], i32(p[0]), f32(p[1]), f32(p[3]),
                               i32(p[2]), i32(p[4]));
      },
      plan);
}

// (dy, ids, vocab_start?) → dtable
BoundKernel embedding_grad(const BindRequest& request) {
  const NodeView& view = request.view;
  const auto& attrs = view.attrs<ops::EmbeddingGradAttrs>();
  EmbeddingPlan plan{{.rows = view.in(ops::EmbeddingGrad::kIds).shape[0],
                      .dim = view.in(ops::EmbeddingGrad::kDy).shape[1],
                      .vocab = view.out(ops::EmbeddingGrad::kDtable).shape[0],
                      .dtype = view.in(ops::EmbeddingGrad::kDy).dtype,
                      .scale = static_cast<float>(attrs.scale),
                      .padding = attrs.padding_id,
                      .parts = parts_of(view, ops::EmbeddingGrad::kVocabStart)},
                     request.accumulate[0]};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<EmbeddingPlan>(held);
        cpu::embedding_backward(call.shape, f32(p[3]), p[0], i32(p[1]), call.accumulate, i32(p[2]));
      },
      plan);
}

// (x, w, residual?) → y, rstd, h?
BoundKernel rms_norm(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::rms_norm_forward(plan_of<NormPlan>(plan).shape, p[3], p[5], f32(p[4]), p[0], p[2], f32(p[1]));
      },
      rms_plan(request, request.view.in(ops::RmsNorm::kX)));
}

// (dy, h, rstd, w, dh?) → dx
BoundKernel rms_norm_grad_input(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::rms_norm_backward_input(plan_of<NormPlan>(plan).shape, p[5], p[0], p[1], f32(p[2]), f32(p[3]),
                                     p[4]);
      },
      rms_plan(request, request.view.in(ops::RmsNormGradInput::kH)));
}

// (dy, h, rstd) → dw
BoundKernel rms_norm_grad_weight(const BindRequest& request) {
  NormPlan plan = rms_plan(request, request.view.in(ops::RmsNormGradWeight::kH));
  plan.accumulate = request.accumulate[0];
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<NormPlan>(held);
        cpu::rms_norm_backward_weight(call.shape, f32(p[3]), p[0], p[1], f32(p[2]), call.accumulate, p[4]);
      },
      plan, cpu::rms_norm_weight_scratch_bytes(plan.shape));
}

// (x, w, b, residual?) → y, mean, rstd, h?
BoundKernel layer_norm(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::layer_norm_forward(plan_of<NormPlan>(plan).shape, p[4], p[7], f32(p[5]), f32(p[6]), p[0], p[3],
                                f32(p[1]), f32(p[2]));
      },
      layer_plan(request, request.view.in(ops::LayerNorm::kX)));
}

// (dy, h, mean, rstd, w, dh?) → dx
BoundKernel layer_norm_grad_input(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::layer_norm_backward_input(plan_of<NormPlan>(plan).shape, p[6], p[0], p[1], f32(p[2]), f32(p[3]),
                                       f32(p[4]), p[5]);
      },
      layer_plan(request, request.view.in(ops::LayerNormGradInput::kH)));
}

// (dy, h, mean, rstd) → dw, db
BoundKernel layer_norm_grad_weight(const BindRequest& request) {
  NormPlan plan = layer_plan(request, request.view.in(ops::LayerNormGradWeight::kH));
  plan.accumulate = request.accumulate[0];
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
  const Value& y = request.view.out(ops::Gated::kY);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::gated_forward(call.kind, call.rows, call.columns, p[1], p[0], call.dtype);
      },
      activation_plan(request, y));
}

// (dy, gate_up) → d_gate_up
BoundKernel gated_grad(const BindRequest& request) {
  const Value& dy = request.view.in(ops::GatedGrad::kDy);
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
      activation_plan(request, request.view.in(ops::Activation::kX)));
}

// (dy, x) → dx
BoundKernel activation_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& call = plan_of<ActivationPlan>(plan);
        cpu::activation_backward(call.kind, call.rows * call.columns, p[2], p[0], p[1], call.dtype);
      },
      activation_plan(request, request.view.in(ops::ActivationGrad::kDy)));
}

// (dy) → sums
BoundKernel column_sums(const BindRequest& request) {
  const Value& dy = request.view.in(ops::ColumnSums::kDy);
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
      Plan{flat(request.view.in(ops::Scale::kX)),
           static_cast<float>(request.view.attrs<ops::ScaleAttrs>().factor)});
}

// (x, table) → y
BoundKernel add_row(const BindRequest& request) {
  const Value& x = request.view.in(ops::AddRow::kX);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<RowPlan>(held);
        cpu::add_row(p[2], p[0], f32(p[1]) + plan.row * plan.x.columns, plan.x.rows, plan.x.columns,
                     plan.x.dtype);
      },
      RowPlan{{x.shape[0], x.shape[1], x.dtype, false}, 0, request.view.attrs<ops::AddRowAttrs>().row});
}

// (dy) → dtable
BoundKernel add_row_grad(const BindRequest& request) {
  const Value& dy = request.view.in(ops::AddRowGrad::kDy);
  const auto& attrs = request.view.attrs<ops::AddRowGradAttrs>();
  const RowPlan plan{{dy.shape[0], dy.shape[1], dy.dtype, request.accumulate[0]}, attrs.rows, attrs.row};
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
  const auto& attrs = request.view.attrs<ops::ConstantAttrs>();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        std::fill_n(f32(p[0]), plan.elements, plan.number);
      },
      Plan{attrs.elements, static_cast<float>(attrs.number)});
}

// (rank) → starts
BoundKernel vocab_start(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& attrs = plan_of<ops::VocabStartAttrs>(held);
        const int64_t first = attrs.ranks > 1 ? graph::coordinates_in(p[0])[attrs.axis] * attrs.parts : 0;
        auto* const starts = reinterpret_cast<int32_t*>(p[1]);
        for (int64_t part = 0; part < attrs.parts; ++part)
          starts[part] = static_cast<int32_t>((first + part) * attrs.rows);
      },
      request.view.attrs<ops::VocabStartAttrs>());
}

// (x, index) → row
BoundKernel take_row(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto bytes = static_cast<size_t>(plan_of<FlatPlan>(plan).n);
        std::memcpy(p[2], p[0] + static_cast<size_t>(*i32(p[1])) * bytes, bytes);
      },
      FlatPlan{request.view.out(ops::TakeRow::kRow).bytes(), DType::kU8});
}

// (targets, ahead) → tokens, targets one place further
BoundKernel targets_ahead(const BindRequest& request) {
  struct Plan {
    int64_t n, length;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& made = plan_of<Plan>(held);
        cpu::targets_ahead(made.n, made.length, reinterpret_cast<int32_t*>(p[2]),
                           reinterpret_cast<int32_t*>(p[3]), i32(p[0]), i32(p[1]));
      },
      Plan{request.view.in(ops::TargetsAhead::kTargets).shape[0],
           request.view.attrs<ops::TargetsAheadAttrs>().sequence_length});
}

// (x, rank) → y
BoundKernel take_shard(const BindRequest& request) {
  struct Plan {
    cpu::ShardShape shape;
    graph::Axis axis;
  };
  const Value& x = request.view.in(graph::TakeShard::kX);
  const auto& attrs = request.view.attrs<graph::ReshardAttrs>();
  const int dim = attrs.to.dim;
  Plan plan{{.parts = x.parts(dim), .inner_bytes = size_of(x.dtype), .ranks = attrs.ranks}, attrs.axis};
  for (int i = 0; i < dim; ++i) plan.shape.outer *= x.shape[i];
  for (int i = dim + 1; i < x.shape.rank(); ++i) plan.shape.inner_bytes *= x.shape[i];
  if (attrs.sequence > 0) {
    // As graph::Cut has it: a piece of each half of every sequence.
    plan.shape.outer = x.shape[0] / attrs.sequence;
    plan.shape.parts = {attrs.sequence / 2, attrs.sequence / 2};
    plan.shape.mirrored = true;
  }
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& made = plan_of<Plan>(held);
        cpu::take_shard(p[2], p[0], made.shape,
                        made.shape.ranks > 1 ? graph::coordinates_in(p[1])[made.axis] : 0);
      },
      std::move(plan));
}

}  // namespace

std::span<const Binding> elementwise_bindings() {
  static const Binding kTable[] = {
      {&graph::kAdd, add},
      {&ops::kEmbedding, embedding},
      {&ops::kVocabStart, vocab_start},
      {&ops::kEmbeddingGrad, embedding_grad},
      {&ops::kColumnSums, column_sums},
      {&ops::kRmsNorm, rms_norm},
      {&ops::kRmsNormGradInput, rms_norm_grad_input},
      {&ops::kRmsNormGradWeight, rms_norm_grad_weight},
      {&ops::kLayerNorm, layer_norm},
      {&ops::kLayerNormGradInput, layer_norm_grad_input},
      {&ops::kLayerNormGradWeight, layer_norm_grad_weight},
      {&ops::kConstant, constant},
      {&graph::kTakeShard, take_shard},
      {&ops::kScale, scale},
      {&ops::kAddRow, add_row},
      {&ops::kAddRowGrad, add_row_grad},
      {&ops::kGated, gated},
      {&ops::kGatedGrad, gated_grad},
      {&ops::kActivation, activation},
      {&ops::kActivationGrad, activation_grad},
      {&ops::kTakeRow, take_row},
      {&ops::kTargetsAhead, targets_ahead},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
