#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "device/cpu/bind.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/qk_norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/shared_heads.h"
#include "ops/ops.h"
#include "ops/take_part.h"
#include "ops/temper.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

struct QkNormPlan {
  cpu::QkNormShape shape;
  bool accumulate_q = false, accumulate_k = false;
};

QkNormPlan qk_norm_plan(const NodeView& view, const Value& qkv, int64_t q_width, int64_t k_width) {
  return {{.rows = qkv.shape[0],
           .q_groups = qkv.segments[0] / q_width,
           .q_width = q_width,
           .k_groups = qkv.segments[1] / k_width,
           .k_width = k_width,
           .row_stride = qkv.shape[1],
           .eps = static_cast<float>(view.attrs<ops::QkNormAttrs>().eps),
           .weight_offset = static_cast<float>(view.attrs<ops::QkNormAttrs>().weight_offset),
           .dtype = qkv.dtype}};
}

struct RopePlan {
  cpu::RopeShape shape;
  bool inverse;
  int64_t bytes;
};

// q, k and v are parts of one buffer, in which k and v begin at these bytes.
struct AttentionBound {
  cpu::AttentionPlan plan;
  int64_t k_bytes, v_bytes;

  cpu::AttentionInputs inputs(const std::byte* qkv, const std::byte* kv_begin, const std::byte* kv_end,
                              const std::byte* bias, const std::byte* sinks) const {
    return {.q = qkv,
            .k = qkv + k_bytes,
            .v = qkv + v_bytes,
            .kv_begin = i32(kv_begin),
            .kv_end = i32(kv_end),
            .bias = f32(bias),
            .sinks = f32(sinks)};
  }
};

struct CachedBound {
  AttentionBound attention;
  int64_t rows, sequence_length, width_bytes, row_bytes, k_bytes, v_bytes, cache_row_bytes,
      cache_sequence_bytes;
};

cpu::AttentionShape shape_of(const NodeView& view, const Value& qkv) {
  const auto& attrs = view.attrs<ops::AttentionAttrs>();
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length;
  const int64_t row = qkv.shape[1];
  return {.batch = qkv.shape[0] / length,
          .q_len = length,
          .kv_len = length,
          .heads = qkv.segments[0] / head_dim,
          .kv_heads = qkv.segments[1] / head_dim,
          .head_dim = head_dim,
          .value_dim = attrs.size_of_value(),
          .scale = static_cast<float>(attrs.scale),
          .dtype = qkv.dtype,
          .q_stride = row,
          .k_stride = row,
          .v_stride = row,
          .out_stride = qkv.segments[0] / head_dim * attrs.size_of_value(),
          .kv_batch_stride = row * length,
          .causal = true,
          .window = attrs.window,
          .chunked = attrs.chunked,
          .softcap = static_cast<float>(attrs.softcap)};
}

// With the bias that is input `bias`, where there is one.
void set_bias(cpu::AttentionShape& shape, const NodeView& view, int bias) {
  if (!view.has(bias)) return;
  shape.bias_width = view.in(bias).shape[1];
  shape.bias_zero = view.attrs<ops::AttentionAttrs>().bias_zero;
}

AttentionBound bound_attention(const BindRequest& request, const Value& qkv, int bias) {
  const int64_t element = size_of(qkv.dtype);
  cpu::AttentionShape shape = shape_of(request.view, qkv);
  shape.causal = request.view.attrs<ops::AttentionAttrs>().causal;
  set_bias(shape, request.view, bias);
  return {cpu::plan_attention(shape, request.device), qkv.segments[0] * element,
          (qkv.segments[0] + qkv.segments[1]) * element};
}

BoundKernel rope_table(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& table = plan_of<ops::RopeTableAttrs>(held);
        cpu::fill_rope_table(f32(p[0]), table.positions, table.frequencies, table.magnitude);
      },
      request.view.attrs<ops::RopeTableAttrs>());
}

// (qkv, q weight, k weight, means?) → y, rstd
BoundKernel qk_norm(const BindRequest& request) {
  const NodeView& view = request.view;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::qk_norm_forward(plan_of<QkNormPlan>(held).shape, p[4], f32(p[5]), p[0], f32(p[1]), f32(p[2]),
                             f32(p[3]));
      },
      qk_norm_plan(view, view.in(ops::QkNorm::kQkv), view.in(ops::QkNorm::kQWeight).shape[0],
                   view.in(ops::QkNorm::kKWeight).shape[0]));
}

// (dy, qkv, rstd, q weight, k weight, means?) → dx
BoundKernel qk_norm_grad_input(const BindRequest& request) {
  const NodeView& view = request.view;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::qk_norm_backward_input(plan_of<QkNormPlan>(held).shape, p[6], p[0], p[1], f32(p[2]), f32(p[3]),
                                    f32(p[4]), f32(p[5]));
      },
      qk_norm_plan(view, view.in(ops::QkNormGradInput::kQkv),
                   view.in(ops::QkNormGradInput::kQWeight).shape[0],
                   view.in(ops::QkNormGradInput::kKWeight).shape[0]));
}

// (qkv, dy?, q weight?, k weight?) → means
BoundKernel qk_means(const BindRequest& request) {
  struct Plan {
    cpu::QkNormShape shape;
    int64_t q_whole, k_whole;
  };
  const Value& qkv = request.view.in(ops::QkMeans::kQkv);
  const auto& attrs = request.view.attrs<ops::QkMeansAttrs>();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        cpu::qk_norm_means(plan.shape, plan.q_whole, plan.k_whole, f32(p[4]), p[0], p[1], f32(p[2]),
                           f32(p[3]));
      },
      Plan{qk_norm_plan(request.view, qkv, qkv.segments[0], qkv.segments[1]).shape, attrs.q_width,
           attrs.k_width});
}

struct SharedHeadsPlan {
  cpu::SharedHeads shape;
  graph::Axis axis;
  int64_t ranks;

  int64_t first(const std::byte* rank) const {
    return ranks > 1 ? graph::coordinates_in(rank)[axis] * shape.own : 0;
  }
};
SharedHeadsPlan shared_heads_plan(const NodeView& view, const Value& qkv, const Value& kv) {
  const auto& attrs = view.attrs<ops::ShareHeadsAttrs>();
  return {{.rows = qkv.shape[0],
           .q_width = qkv.segments[0],
           .head_dim = attrs.head_dim,
           .kv_heads = kv.shape[1] / 2 / attrs.head_dim,
           .copies = attrs.copies,
           .own = qkv.segments[1] / attrs.head_dim,
           .dtype = qkv.dtype},
          attrs.axis,
          attrs.ranks};
}

// (q, kv, rank) → qkv
BoundKernel share_heads(const BindRequest& request) {
  const NodeView& view = request.view;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<SharedHeadsPlan>(held);
        cpu::share_heads_forward(plan.shape, p[3], p[0], p[1], plan.first(p[2]));
      },
      shared_heads_plan(view, view.out(ops::ShareHeads::kQkv), view.in(ops::ShareHeads::kKv)));
}

// (dqkv, rank) → dq, dkv
BoundKernel share_heads_grad(const BindRequest& request) {
  const NodeView& view = request.view;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<SharedHeadsPlan>(held);
        cpu::share_heads_backward(plan.shape, p[2], p[3], p[0], plan.first(p[1]));
      },
      shared_heads_plan(view, view.in(ops::ShareHeadsGrad::kDqkv), view.out(ops::ShareHeadsGrad::kDkv)));
}

// (dy, qkv, rstd) → dq weight, dk weight
BoundKernel qk_norm_grad_weight(const BindRequest& request) {
  const NodeView& view = request.view;
  const Value& qkv = view.in(ops::QkNormGradWeight::kQkv);
  QkNormPlan plan = qk_norm_plan(view, qkv, view.out(ops::QkNormGradWeight::kDqWeight).shape[0],
                                 view.out(ops::QkNormGradWeight::kDkWeight).shape[0]);
  plan.accumulate_q = request.accumulate[0];
  plan.accumulate_k = request.accumulate[1];
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<QkNormPlan>(held);
        cpu::qk_norm_backward_weight(call.shape, f32(p[3]), f32(p[4]), p[0], p[1], f32(p[2]),
                                     call.accumulate_q, call.accumulate_k, p[5]);
      },
      plan, cpu::qk_norm_weight_scratch_bytes(plan.shape));
}

// (qkv, table, positions) → qkv
BoundKernel rope(const BindRequest& request) {
  const NodeView& view = request.view;
  const Value& qkv = view.in(ops::Rope::kQkv);
  const auto& attrs = view.attrs<ops::RopeAttrs>();
  const int64_t head_dim = attrs.head_dim;
  const int64_t width = qkv.segments.empty() ? qkv.shape[1] : qkv.segments[0] + qkv.segments[1];
  RopePlan plan{{.rows = qkv.shape[0],
                 .heads = width / head_dim,
                 .head_dim = head_dim,
                 .rotary_dim = 2 * view.in(ops::Rope::kTable).shape[1],
                 .row_stride = qkv.shape[1],
                 .dtype = qkv.dtype,
                 .first = attrs.first,
                 .adjacent = attrs.adjacent},
                attrs.inverse,
                qkv.bytes()};
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<RopePlan>(held);
        if (p[3] != p[0]) {  // v, which does not rotate, must arrive too
          parallel_ranges(call.bytes, 1 << 20, [&](int64_t begin, int64_t end) {
            std::memcpy(p[3] + begin, p[0] + begin, static_cast<size_t>(end - begin));
          });
        }
        cpu::rope(call.shape, p[3], p[3], f32(p[1]), i32(p[2]), call.inverse);
      },
      plan);
}

// (qkv, kv_begin?, kv_end?, bias?, sinks?) → out, lse
BoundKernel attention(const BindRequest& request) {
  AttentionBound plan =
      bound_attention(request, request.view.in(ops::Attention::kQkv), ops::Attention::kBias);
  const int64_t scratch = plan.plan.forward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<AttentionBound>(held);
        cpu::attention_forward(call.plan, p[5], f32(p[6]), call.inputs(p[0], p[1], p[2], p[3], p[4]), p[7]);
      },
      plan, scratch);
}

// (dout, out, lse, qkv, kv_begin?, kv_end?, bias?) → dqkv, dbias?
BoundKernel attention_grad(const BindRequest& request) {
  AttentionBound plan =
      bound_attention(request, request.view.in(ops::AttentionGrad::kQkv), ops::AttentionGrad::kBias);
  const int64_t scratch = plan.plan.backward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<AttentionBound>(held);
        cpu::attention_backward(
            call.plan, {.dq = p[7], .dk = p[7] + call.k_bytes, .dv = p[7] + call.v_bytes, .dbias = f32(p[8])},
            p[0], p[1], f32(p[2]), call.inputs(p[3], p[4], p[5], p[6], nullptr), p[9]);
      },
      plan, scratch);
}

// (qkv, key cache, value cache, position, slot, bias?, sinks?) → out, key cache, value cache
BoundKernel cached_attention(const BindRequest& request) {
  const NodeView& view = request.view;
  const Value& qkv = view.in(ops::CachedAttention::kQkv);
  const Value& cache = view.in(ops::CachedAttention::kKeys);
  cpu::AttentionShape shape = shape_of(view, qkv);
  const int64_t element = size_of(qkv.dtype);
  const int64_t kv_width = cache.shape[2];
  shape.kv_len = cache.shape[1];
  shape.k_stride = shape.v_stride = kv_width;
  shape.kv_batch_stride = cache.shape[1] * kv_width;
  set_bias(shape, view, ops::CachedAttention::kBias);
  CachedBound plan{};
  plan.attention.plan = cpu::plan_attention(shape, request.device);
  plan.rows = qkv.shape[0];
  plan.sequence_length = shape.q_len;
  plan.row_bytes = qkv.shape[1] * element;
  plan.k_bytes = qkv.segments[0] * element;
  plan.v_bytes = (qkv.segments[0] + qkv.segments[1]) * element;
  plan.cache_row_bytes = kv_width * element;
  plan.cache_sequence_bytes = shape.kv_batch_stride * element;
  const int64_t lse_bytes = shape.batch * shape.heads * shape.q_len * 4;
  plan.width_bytes = (lse_bytes + 63) / 64 * 64;
  const int64_t scratch = plan.width_bytes + plan.attention.plan.forward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<CachedBound>(held);
        for (int64_t row = 0; row < call.rows; ++row) {
          const int64_t s = row / call.sequence_length;
          const int64_t at = i32(p[4])[s] * call.cache_sequence_bytes +
                             (i32(p[3])[s] + row % call.sequence_length) * call.cache_row_bytes;
          std::memcpy(p[1] + at, p[0] + row * call.row_bytes + call.k_bytes,
                      static_cast<size_t>(call.cache_row_bytes));
          std::memcpy(p[2] + at, p[0] + row * call.row_bytes + call.v_bytes,
                      static_cast<size_t>(call.cache_row_bytes));
        }
        cpu::attention_forward(call.attention.plan, p[7], f32(p[10]),
                               {.q = p[0],
                                .k = p[1],
                                .v = p[2],
                                .q_start = i32(p[3]),
                                .kv_slot = i32(p[4]),
                                .bias = f32(p[5]),
                                .sinks = f32(p[6])},
                               p[10] + call.width_bytes);
      },
      plan, scratch);
}

// (dout, out, lse, sinks) → dsinks
BoundKernel sink_grad(const BindRequest& request) {
  const Value& out = request.view.in(ops::SinkGrad::kOut);
  const auto& attrs = request.view.attrs<ops::SinkGradAttrs>();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::sink_gradient(plan_of<cpu::SinkGradShape>(held), f32(p[4]), p[0], p[1], f32(p[2]), f32(p[3]));
      },
      cpu::SinkGradShape{out.shape[0], attrs.sequence_length, out.shape[1] / attrs.head_dim, attrs.head_dim,
                         out.dtype, request.accumulate[ops::SinkGrad::kDsinks]});
}

// (qkv, positions) → y
BoundKernel temper(const BindRequest& request) {
  const Value& qkv = request.view.in(ops::Temper::kQkv);
  const auto& attrs = request.view.attrs<ops::TemperAttrs>();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::temper(plan_of<cpu::TemperShape>(held), p[2], p[0], i32(p[1]));
      },
      cpu::TemperShape{.rows = qkv.shape[0],
                       .q_width = qkv.segments[0],
                       .width = qkv.shape[1],
                       .floor = attrs.floor,
                       .scale = static_cast<float>(attrs.scale),
                       .dtype = qkv.dtype});
}

// (positions, begins?) → begins of chunks
BoundKernel chunk_begins(const BindRequest& request) {
  struct Plan {
    int64_t rows, size;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        auto* const to = reinterpret_cast<int32_t*>(p[2]);
        const int32_t* const begins = i32(p[1]);
        const auto size = static_cast<int32_t>(plan.size);
        for (int64_t n = 0; n < plan.rows; ++n)
          to[n] = (begins != nullptr ? begins[n] : 0) + i32(p[0])[n] / size * size;
      },
      Plan{request.view.in(0).shape[0], request.view.attrs<ops::ChunkAttrs>().size});
}

struct PartPlan {
  int64_t numbers = 0;  // of a part
  ops::TakePartAttrs attrs;
  bool accumulate = false;
  int64_t first(const std::byte* rank) const {
    return attrs.ranks > 1 ? graph::coordinates_in(rank)[attrs.axis] * numbers : 0;
  }
};

// (x, rank) → y
BoundKernel take_part(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartPlan>(held);
        std::copy_n(f32(p[0]) + plan.first(p[1]), plan.numbers, f32(p[2]));
      },
      PartPlan{request.view.out(0).shape[0], request.view.attrs<ops::TakePartAttrs>()});
}
// (dy, rank) → dx
BoundKernel take_part_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<PartPlan>(held);
        float* const to = f32(p[2]);
        if (!plan.accumulate) std::fill_n(to, plan.attrs.ranks * plan.numbers, 0.0f);
        const int64_t first = plan.first(p[1]);
        for (int64_t i = 0; i < plan.numbers; ++i) to[first + i] += f32(p[0])[i];
      },
      PartPlan{request.view.in(0).shape[0], request.view.attrs<ops::TakePartAttrs>(),
               request.accumulate[ops::TakePartGrad::kDx]});
}

}  // namespace

std::span<const Binding> attention_bindings() {
  static const Binding kTable[] = {
      {&ops::kQkNorm, qk_norm},
      {&ops::kQkMeans, qk_means},
      {&ops::kShareHeads, share_heads},
      {&ops::kShareHeadsGrad, share_heads_grad},
      {&ops::kQkNormGradInput, qk_norm_grad_input},
      {&ops::kQkNormGradWeight, qk_norm_grad_weight},
      {&ops::kRopeTable, rope_table},
      {&ops::kRope, rope},
      {&ops::kAttention, attention},
      {&ops::kAttentionGrad, attention_grad},
      {&ops::kCachedAttention, cached_attention},
      {&ops::kSinkGrad, sink_grad},
      {&ops::kTakePart, take_part},
      {&ops::kTakePartGrad, take_part_grad},
      {&ops::kTemper, temper},
      {&ops::kChunkBegins, chunk_begins},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
