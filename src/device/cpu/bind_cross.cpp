// Attention to another sequence, and what attention reads besides queries, keys and values.
#include <algorithm>
#include <cstring>

#include "device/cpu/bind.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/relative_bias.h"
#include "ops/ops.h"
#include "tensor/arena.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

struct CrossBound {
  cpu::AttentionPlan plan;
  int64_t v_bytes = 0;  // from k to v in a row
  // Of the cached form: parts of the scratch before the kernel's own.
  int64_t ends_bytes = 0, lse_bytes = 0;
};

// All but where keys and values lie.
cpu::AttentionShape shape_of(const NodeView& view, const Value& q) {
  const auto& attrs = view.attrs<ops::CrossAttentionAttrs>();
  const int64_t head_dim = attrs.head_dim, length = attrs.sequence_length;
  return {.batch = q.shape[0] / length,
          .q_len = length,
          .heads = q.shape[1] / head_dim,
          .head_dim = head_dim,
          .scale = static_cast<float>(attrs.scale),
          .dtype = q.dtype,
          .q_stride = q.shape[1],
          .out_stride = q.shape[1],
          .causal = false,
          .softcap = static_cast<float>(attrs.softcap)};
}

CrossBound bound_cross(const BindRequest& request, const Value& q, const Value& kv) {
  cpu::AttentionShape shape = shape_of(request.view, q);
  shape.kv_len = request.view.attrs<ops::CrossAttentionAttrs>().encoder_length;
  shape.kv_heads = kv.segments[0] / shape.head_dim;
  shape.k_stride = shape.v_stride = kv.shape[1];
  shape.kv_batch_stride = kv.shape[1] * shape.kv_len;
  return {cpu::plan_attention(shape, request.device), kv.segments[0] * size_of(kv.dtype)};
}

struct StoreBound {
  int64_t sources, rows, row_bytes, slot_bytes;
};

struct EndsBound {
  int64_t sequences, length, encoder_length;
};

struct RelativeBound {
  cpu::RelativeBiasShape shape;
  bool accumulate;
};

RelativeBound bound_relative(const NodeView& view, int64_t buckets, int64_t heads, bool accumulate) {
  const auto& attrs = view.attrs<ops::RelativeBiasAttrs>();
  return {{.buckets = buckets,
           .heads = heads,
           .max_distance = attrs.max_distance,
           .bidirectional = attrs.bidirectional,
           .first = attrs.first,
           .last = attrs.last},
          accumulate};
}

// (q, kv, kv_begin?, kv_end?) → out, lse
BoundKernel cross_attention(const BindRequest& request) {
  CrossBound plan = bound_cross(request, request.view.in(ops::CrossAttention::kQ),
                                request.view.in(ops::CrossAttention::kKv));
  const int64_t scratch = plan.plan.forward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<CrossBound>(held);
        cpu::attention_forward(
            call.plan, p[4], f32(p[5]),
            {.q = p[0], .k = p[1], .v = p[1] + call.v_bytes, .kv_begin = i32(p[2]), .kv_end = i32(p[3])},
            p[6]);
      },
      plan, scratch);
}

// (dout, out, lse, q, kv, kv_begin?, kv_end?) → dq, dkv
BoundKernel cross_attention_grad(const BindRequest& request) {
  CrossBound plan = bound_cross(request, request.view.in(ops::CrossAttentionGrad::kQ),
                                request.view.in(ops::CrossAttentionGrad::kKv));
  const int64_t scratch = plan.plan.backward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<CrossBound>(held);
        cpu::attention_backward(
            call.plan, {.dq = p[7], .dk = p[8], .dv = p[8] + call.v_bytes}, p[0], p[1], f32(p[2]),
            {.q = p[3], .k = p[4], .v = p[4] + call.v_bytes, .kv_begin = i32(p[5]), .kv_end = i32(p[6])},
            p[9]);
      },
      plan, scratch);
}

// (q, key cache, value cache, slot, encoder_end) → out
BoundKernel cached_cross_attention(const BindRequest& request) {
  const Value& cache = request.view.in(ops::CachedCrossAttention::kKeys);
  cpu::AttentionShape shape = shape_of(request.view, request.view.in(ops::CachedCrossAttention::kQ));
  shape.kv_len = cache.shape[1];
  shape.kv_heads = cache.shape[2] / shape.head_dim;
  shape.k_stride = shape.v_stride = cache.shape[2];
  shape.kv_batch_stride = cache.shape[1] * cache.shape[2];
  CrossBound plan{cpu::plan_attention(shape, request.device)};
  plan.ends_bytes = align_up(shape.batch * shape.q_len * int64_t{sizeof(int32_t)}, kBufferAlignment);
  plan.lse_bytes =
      align_up(shape.batch * shape.heads * shape.q_len * int64_t{sizeof(float)}, kBufferAlignment);
  const int64_t scratch = plan.ends_bytes + plan.lse_bytes + plan.plan.forward_scratch_bytes;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<CrossBound>(held);
        const cpu::AttentionShape& s = call.plan.shape;
        std::byte* const own = p[6];
        auto* const ends = reinterpret_cast<int32_t*>(own);
        for (int64_t b = 0; b < s.batch; ++b) std::fill_n(ends + b * s.q_len, s.q_len, i32(p[4])[b]);
        cpu::attention_forward(call.plan, p[5], f32(own + call.ends_bytes),
                               {.q = p[0], .k = p[1], .v = p[2], .kv_end = ends, .kv_slot = i32(p[3])},
                               own + call.ends_bytes + call.lse_bytes);
      },
      plan, scratch);
}

// (kv, key cache, value cache, slot) → key cache, value cache
BoundKernel store_cross(const BindRequest& request) {
  const Value& kv = request.view.in(ops::StoreCross::kKv);
  const Value& cache = request.view.in(ops::StoreCross::kKeys);
  const int64_t sources = request.view.in(ops::StoreCross::kSlot).shape[0];
  const int64_t row_bytes = cache.shape[2] * size_of(cache.dtype);
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<StoreBound>(held);
        const auto bytes = static_cast<size_t>(call.row_bytes);
        for (int64_t row = 0; row < call.sources * call.rows; ++row) {
          const int64_t to = i32(p[3])[row / call.rows] * call.slot_bytes + row % call.rows * call.row_bytes;
          const std::byte* const from = p[0] + 2 * row * call.row_bytes;
          std::memcpy(p[1] + to, from, bytes);
          std::memcpy(p[2] + to, from + bytes, bytes);
        }
      },
      StoreBound{sources, kv.shape[0] / sources, row_bytes, cache.shape[1] * row_bytes});
}

// (q_begin, k_begin) → ends
BoundKernel document_ends(const BindRequest& request) {
  const auto& attrs = request.view.attrs<ops::DocumentEndsAttrs>();
  const int64_t length = attrs.sequence_length;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<EndsBound>(held);
        cpu::document_ends(call.sequences, call.length, call.encoder_length, reinterpret_cast<int32_t*>(p[2]),
                           i32(p[0]), i32(p[1]));
      },
      EndsBound{request.view.in(ops::DocumentEnds::kQBegin).shape[0] / length, length, attrs.encoder_length});
}

// (table) → bias
BoundKernel relative_bias(const BindRequest& request) {
  const Shape& table = request.view.in(ops::RelativeBias::kTable).shape;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::relative_bias(plan_of<RelativeBound>(held).shape, f32(p[1]), f32(p[0]));
      },
      bound_relative(request.view, table[0], table[1], false));
}

// (dbias) → dtable
BoundKernel relative_bias_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& call = plan_of<RelativeBound>(held);
        cpu::relative_bias_backward(call.shape, f32(p[1]), f32(p[0]), call.accumulate);
      },
      bound_relative(request.view, request.view.attrs<ops::RelativeBiasAttrs>().buckets,
                     request.view.in(ops::RelativeBiasGrad::kDbias).shape[0], request.accumulate[0]));
}

}  // namespace

std::span<const Binding> cross_bindings() {
  static const Binding kTable[] = {
      {&ops::kCrossAttention, cross_attention},
      {&ops::kCrossAttentionGrad, cross_attention_grad},
      {&ops::kCachedCrossAttention, cached_cross_attention},
      {&ops::kStoreCross, store_cross},
      {&ops::kDocumentEnds, document_ends},
      {&ops::kRelativeBias, relative_bias},
      {&ops::kRelativeBiasGrad, relative_bias_grad},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
