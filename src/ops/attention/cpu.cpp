#include "ops/attention/cpu.h"

#include <cstring>

#include "ops/attention/attention.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::AttentionShape shape_of_qkv(const Bind<Op>& node) {
  const graph::Value& qkv = *node.in.qkv;
  const ops::AttentionAttrs& attrs = node.attrs;
  cpu::AttentionShape shape =
      attention_shape(node, qkv, qkv.segments[0], attrs.sequence_length, qkv.segments[1], qkv.shape[1]);
  shape.value_dim = attrs.size_of_value();
  shape.out_stride = shape.heads * shape.value_dim;
  shape.chunked = attrs.chunked;
  return shape;
}

// q, k and v are parts of one buffer, in which k and v begin at these bytes.
struct PartsOfQkv {
  explicit PartsOfQkv(const graph::Value& qkv)
      : k(qkv.segments[0] * size_of(qkv.dtype)), v(k + qkv.segments[1] * size_of(qkv.dtype)) {}
  int64_t k, v;
};

template <typename Op>
cpu::AttentionInputs inputs_of(const PartsOfQkv& parts, const Operands<Op>& at) {
  return attention_inputs(at, at.in.qkv, at.in.qkv + parts.k, at.in.qkv + parts.v);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Attention>& node) {
  const cpu::AttentionPlan plan = cpu::plan_attention(shape_of_qkv(node), node.device);
  return node.kernel(
      [plan, parts = PartsOfQkv(*node.in.qkv),
       adds = node.adds.greatest](const Operands<ops::Attention>& at) {
        cpu::attention_forward(plan, at.out.out, at.out.lse, inputs_of(parts, at), at.scratch,
                               {at.out.greatest, adds});
      },
      plan.forward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::AttentionGrad>& node) {
  const cpu::AttentionPlan plan = cpu::plan_attention(shape_of_qkv(node), node.device);
  return node.kernel(
      [plan, parts = PartsOfQkv(*node.in.qkv)](const Operands<ops::AttentionGrad>& at) {
        std::byte* const dqkv = at.out.dqkv;
        cpu::attention_backward(
            plan, {.dq = dqkv, .dk = dqkv + parts.k, .dv = dqkv + parts.v, .dbias = at.out.dbias}, at.in.dout,
            at.in.out, at.in.lse, inputs_of(parts, at), at.scratch);
      },
      plan.backward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedAttention>& node) {
  const graph::Value &qkv = *node.in.qkv, &cache = *node.in.keys;
  cpu::AttentionShape shape = shape_of_qkv(node);
  const int64_t width = cache.shape[2];
  shape.kv_len = cache.shape[1];
  shape.k_stride = shape.v_stride = width;
  shape.kv_batch_stride = shape.kv_len * width;
  const cpu::AttentionPlan plan = cpu::plan_attention(shape, node.device);
  const int64_t row_bytes = qkv.shape[1] * size_of(qkv.dtype);
  const int64_t cache_row_bytes = width * size_of(cache.dtype);
  // Scratch that precedes the kernel's own.
  const int64_t lse_bytes = align_up(shape.batch * shape.heads * shape.q_len * 4, kBufferAlignment);
  return node.kernel(
      [plan, parts = PartsOfQkv(qkv), row_bytes, cache_row_bytes,
       lse_bytes](const Operands<ops::CachedAttention>& at) {
        const int64_t length = plan.shape.q_len;
        for (int64_t row = 0; row < plan.shape.batch * length; ++row) {
          const int64_t s = row / length;
          const int64_t to =
              (at.in.slot[s] * plan.shape.kv_len + at.in.position[s] + row % length) * cache_row_bytes;
          const std::byte* const from = at.in.qkv + row * row_bytes;
          std::memcpy(at.out.keys + to, from + parts.k, static_cast<size_t>(cache_row_bytes));
          std::memcpy(at.out.values + to, from + parts.v, static_cast<size_t>(cache_row_bytes));
        }
        cpu::attention_forward(plan, at.out.out, reinterpret_cast<float*>(at.scratch),
                               {.q = at.in.qkv,
                                .k = at.out.keys,
                                .v = at.out.values,
                                .q_start = at.in.position,
                                .kv_slot = at.in.slot,
                                .bias = at.in.bias,
                                .sinks = at.in.sinks},
                               at.scratch + lse_bytes);
      },
      lse_bytes + plan.forward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::SinkGrad>& node) {
  const graph::Value& out = *node.in.out;
  const ops::SinkGradAttrs& attrs = node.attrs;
  const cpu::SinkGradShape shape{.rows = out.shape[0],
                                 .length = attrs.sequence_length,
                                 .heads = out.shape[1] / attrs.head_dim,
                                 .head_dim = attrs.head_dim,
                                 .dtype = out.dtype,
                                 .accumulate = node.adds.dsinks};
  return node.kernel([shape](const Operands<ops::SinkGrad>& at) {
    cpu::sink_gradient(shape, at.out.dsinks, at.in.dout, at.in.out, at.in.lse, at.in.sinks);
  });
}

}  // namespace strata::device
