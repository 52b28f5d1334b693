// Attention of rows that the ranks of an axis share (ops/context_attention.h).
#include <cstring>

#include "base/parallel.h"
#include "device/cpu/bind.h"
#include "kernels/cpu/attention.h"
#include "ops/context_attention.h"
#include "tensor/arena.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

struct ContextBound {
  cpu::AttentionPlan plan;
  int64_t v_bytes = 0;  // from k to v in a row
  graph::Axis axis = {};
  int64_t ranks = 1, ring_step = -1;
  int64_t starts_bytes = 0;  // of the scratch before the kernel's own: places of queries, then of keys

  cpu::AttentionInputs inputs(const std::byte* q, const std::byte* kv, const std::byte* kv_begin,
                              const std::byte* kv_end, const std::byte* bias, const int32_t* starts,
                              const std::byte* sinks = nullptr) const {
    const int32_t* const kv_starts = ring_step < 0 ? nullptr : starts + 2 * plan.shape.batch;
    return {.q = q,
            .k = kv,
            .v = kv + v_bytes,
            .kv_begin = i32(kv_begin),
            .kv_end = i32(kv_end),
            .q_start = starts,
            .kv_start = kv_starts,
            .bias = f32(bias),
            .sinks = f32(sinks)};
  }
  // Where the two pieces of this rank begin, for each sequence, and those of the rank whose keys it reads.
  const int32_t* fill_starts(std::byte* to, const std::byte* rank) const {
    const int64_t index = ranks > 1 ? graph::coordinates_in(rank)[axis] : 0;
    auto* const starts = reinterpret_cast<int32_t*>(to);
    fill_pieces(starts, index);
    if (ring_step >= 0)
      fill_pieces(starts + 2 * plan.shape.batch, (index + ranks - ring_step % ranks) % ranks);
    return starts;
  }
  void fill_pieces(int32_t* to, int64_t index) const {
    const int64_t piece = plan.shape.q_len / 2;
    for (int64_t b = 0; b < plan.shape.batch; ++b) {
      to[2 * b] = static_cast<int32_t>(index * piece);
      to[2 * b + 1] = static_cast<int32_t>((2 * ranks - 1 - index) * piece);
    }
  }
};

ContextBound bound_attention(const BindRequest& request, const Value& q, const Value& kv, const Value* bias) {
  const auto& attrs = request.view.attrs<ops::ContextAttentionAttrs>();
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length;
  const cpu::AttentionShape shape{.batch = q.shape[0] / length,
                                  .q_len = length,
                                  .kv_len = attrs.kv_length,
                                  .heads = q.shape[1] / head_dim,
                                  .kv_heads = kv.segments[0] / head_dim,
                                  .head_dim = head_dim,
                                  .scale = static_cast<float>(attrs.scale),
                                  .dtype = q.dtype,
                                  .q_stride = q.shape[1],
                                  .k_stride = kv.shape[1],
                                  .v_stride = kv.shape[1],
                                  .out_stride = q.shape[1],
                                  .kv_batch_stride = kv.shape[1] * attrs.kv_length,
                                  .q_pieces = 2,
                                  .kv_pieces = attrs.ring_step < 0 ? 1 : 2,
                                  .causal = attrs.causal,
                                  .window = attrs.window,
                                  .softcap = static_cast<float>(attrs.softcap),
                                  .bias_width = bias != nullptr ? bias->shape[1] : 0,
                                  .bias_zero = bias != nullptr ? attrs.bias_zero : 0};
  return {cpu::plan_attention(shape, request.device),
          kv.segments[0] * size_of(kv.dtype),
          attrs.axis,
          attrs.ranks,
          attrs.ring_step,
          align_up(4 * shape.batch * int64_t{sizeof(int32_t)}, kBufferAlignment)};
}

const Value* optional(const NodeView& view, int input) {
  return view.has(input) ? &view.in(input) : nullptr;
}

// (q, kv, kv_begin?, kv_end?, bias?, rank, sinks?) → out, lse
BoundKernel context_attention(const BindRequest& request) {
  using In = ops::ContextAttention;
  const NodeView& view = request.view;
  ContextBound plan = bound_attention(request, view.in(In::kQ), view.in(In::kKv), optional(view, In::kBias));
  const int64_t scratch = plan.starts_bytes + plan.plan.forward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<ContextBound>(held);
        const int32_t* const starts = call.fill_starts(p[9], p[5]);
        cpu::attention_forward(call.plan, p[7], f32(p[8]),
                               call.inputs(p[0], p[1], p[2], p[3], p[4], starts, p[6]),
                               p[9] + call.starts_bytes);
      },
      plan, scratch);
}

// (dout, out, lse, q, kv, kv_begin?, kv_end?, bias?, rank) → dq, dkv, dbias?
BoundKernel context_attention_grad(const BindRequest& request) {
  using In = ops::ContextAttentionGrad;
  const NodeView& view = request.view;
  ContextBound plan = bound_attention(request, view.in(In::kQ), view.in(In::kKv), optional(view, In::kBias));
  const int64_t scratch = plan.starts_bytes + plan.plan.backward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<ContextBound>(held);
        const int32_t* const starts = call.fill_starts(p[12], p[8]);
        cpu::attention_backward(
            call.plan, {.dq = p[9], .dk = p[10], .dv = p[10] + call.v_bytes, .dbias = f32(p[11])}, p[0], p[1],
            f32(p[2]), call.inputs(p[3], p[4], p[5], p[6], p[7], starts), p[12] + call.starts_bytes);
      },
      plan, scratch);
}

// (out, lse, out, lse, …) → out, lse
BoundKernel merge_attention(const BindRequest& request) {
  const Value& out = request.view.in(ops::MergeAttention::kOut);
  const auto& attrs = request.view.attrs<ops::ContextAttentionAttrs>();
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::merge_attention(plan_of<cpu::AttentionMergeShape>(held), p[10], f32(p[11]), p[0], f32(p[1]),
                             p[2], f32(p[3]));
      },
      cpu::AttentionMergeShape{out.shape[0], attrs.sequence_length, out.shape[1] / attrs.head_dim,
                               attrs.head_dim, out.dtype});
}

struct SplitBound {
  int64_t rows;
  size_t q_bytes, kv_bytes;  // of a row
};

// (qkv) → q, kv
BoundKernel split_qkv(const BindRequest& request) {
  const Value& qkv = request.view.in(ops::SplitQkv::kQkv);
  const auto width = static_cast<size_t>(size_of(qkv.dtype));
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<SplitBound>(held);
        parallel_ranges(call.rows, 64, [&](int64_t begin, int64_t end) {
          for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
            const std::byte* const from = p[0] + row * (call.q_bytes + call.kv_bytes);
            std::memcpy(p[1] + row * call.q_bytes, from, call.q_bytes);
            std::memcpy(p[2] + row * call.kv_bytes, from + call.q_bytes, call.kv_bytes);
          }
        });
      },
      SplitBound{qkv.shape[0], static_cast<size_t>(qkv.segments[0]) * width,
                 static_cast<size_t>(2 * qkv.segments[1]) * width});
}

// (q, kv) → qkv
BoundKernel join_qkv(const BindRequest& request) {
  const Value &q = request.view.in(ops::JoinQkv::kQ), &kv = request.view.in(ops::JoinQkv::kKv);
  const auto width = static_cast<size_t>(size_of(q.dtype));
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<SplitBound>(held);
        parallel_ranges(call.rows, 64, [&](int64_t begin, int64_t end) {
          for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
            std::byte* const to = p[2] + row * (call.q_bytes + call.kv_bytes);
            std::memcpy(to, p[0] + row * call.q_bytes, call.q_bytes);
            std::memcpy(to + call.q_bytes, p[1] + row * call.kv_bytes, call.kv_bytes);
          }
        });
      },
      SplitBound{q.shape[0], static_cast<size_t>(q.shape[1]) * width,
                 static_cast<size_t>(kv.shape[1]) * width});
}

}  // namespace

std::span<const Binding> context_bindings() {
  static const Binding kTable[] = {
      {&ops::kSplitQkv, split_qkv},
      {&ops::kJoinQkv, join_qkv},
      {&ops::kContextAttention, context_attention},
      {&ops::kContextAttentionGrad, context_attention_grad},
      {&ops::kMergeAttention, merge_attention},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
