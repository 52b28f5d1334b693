#include "ops/attention/cpu.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/relative_bias.h"
#include "ops/cross_attention/cross_attention.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::AttentionPlan plan_cross(const Bind<Op>& node) {
  const graph::Value &q = *node.in.q, &kv = *node.in.kv;
  return cpu::plan_attention(
      attention_shape(node, q, q.shape[1], node.attrs.encoder_length, kv.segments[0], kv.shape[1]),
      node.device);
}

template <typename Op>
cpu::AttentionInputs cross_inputs(const Operands<Op>& at, int64_t k_bytes) {
  return attention_inputs(at, at.in.q, at.in.kv, at.in.kv + k_bytes);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossAttention>& node) {
  const cpu::AttentionPlan plan = plan_cross(node);
  return node.kernel(
      [plan, k_bytes = value_offset(*node.in.kv)](const Operands<ops::CrossAttention>& at) {
        cpu::attention_forward(plan, at.out.out, at.out.lse, cross_inputs(at, k_bytes), at.scratch);
      },
      plan.forward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CrossAttentionGrad>& node) {
  const cpu::AttentionPlan plan = plan_cross(node);
  return node.kernel(
      [plan, k_bytes = value_offset(*node.in.kv)](const Operands<ops::CrossAttentionGrad>& at) {
        cpu::attention_backward(plan, {.dq = at.out.dq, .dk = at.out.dkv, .dv = at.out.dkv + k_bytes},
                                at.in.dout, at.in.out, at.in.lse, cross_inputs(at, k_bytes), at.scratch);
      },
      plan.backward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedCrossAttention>& node) {
  const graph::Value& q = *node.in.q;
  const Shape& cache = node.in.keys->shape;
  const cpu::AttentionPlan plan =
      cpu::plan_attention(attention_shape(node, q, q.shape[1], cache[1], cache[2], cache[2]), node.device);
  // Scratch that precedes the kernel's own.
  const int64_t rows = plan.shape.batch * plan.shape.q_len;
  const int64_t ends_bytes = align_up(rows * int64_t{sizeof(int32_t)}, kBufferAlignment);
  const int64_t lse_bytes = align_up(rows * plan.shape.heads * int64_t{sizeof(float)}, kBufferAlignment);
  return node.kernel(
      [plan, ends_bytes, lse_bytes](const Operands<ops::CachedCrossAttention>& at) {
        const cpu::AttentionShape& s = plan.shape;
        auto* const ends = reinterpret_cast<int32_t*>(at.scratch);
        for (int64_t b = 0; b < s.batch; ++b) std::fill_n(ends + b * s.q_len, s.q_len, at.in.encoder_end[b]);
        cpu::attention_forward(
            plan, at.out.out, reinterpret_cast<float*>(at.scratch + ends_bytes),
            {.q = at.in.q, .k = at.in.keys, .v = at.in.values, .kv_end = ends, .kv_slot = at.in.slot},
            at.scratch + ends_bytes + lse_bytes);
      },
      ends_bytes + lse_bytes + plan.forward_scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::StoreCross>& node) {
  const graph::Value &kv = *node.in.kv, &cache = *node.in.keys;
  const int64_t row_bytes = cache.shape[2] * size_of(cache.dtype);
  return node.kernel([row_bytes, slot_bytes = cache.shape[1] * row_bytes, rows = kv.shape[0],
                      length = kv.shape[0] / node.in.slot->shape[0]](const Operands<ops::StoreCross>& at) {
    const auto bytes = static_cast<size_t>(row_bytes);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t to = at.in.slot[row / length] * slot_bytes + row % length * row_bytes;
      const std::byte* const from = at.in.kv + 2 * row * row_bytes;
      std::memcpy(at.out.keys + to, from, bytes);
      std::memcpy(at.out.values + to, from + bytes, bytes);
    }
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::DocumentEnds>& node) {
  const int64_t length = node.attrs.sequence_length;
  return node.kernel([sequences = node.in.q_begin->shape[0] / length, length,
                      keys = node.attrs.encoder_length](const Operands<ops::DocumentEnds>& at) {
    cpu::document_ends(sequences, length, keys, at.out.ends, at.in.q_begin, at.in.k_begin);
  });
}

}  // namespace strata::device
