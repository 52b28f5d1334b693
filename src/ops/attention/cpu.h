// Shared code of the CPU bindings of attention.
#pragma once

#include "device/cpu/cpu.h"
#include "kernels/cpu/attention.h"
#include "tensor/arena.h"

namespace strata::device {

// The queries are the first `q_width` columns of q. A sequence has `kv_length` keys of `kv_width` elements,
// in rows of `kv_stride`.
template <typename Op>
cpu::AttentionShape attention_shape(const Bind<Op>& node, const graph::Value& q, int64_t q_width,
                                    int64_t kv_length, int64_t kv_width, int64_t kv_stride) {
  const auto& attrs = node.attrs;
  cpu::AttentionShape shape{.batch = q.shape[0] / attrs.sequence_length,
                            .q_len = attrs.sequence_length,
                            .kv_len = kv_length,
                            .heads = q_width / attrs.head_dim,
                            .kv_heads = kv_width / attrs.head_dim,
                            .head_dim = attrs.head_dim,
                            .scale = static_cast<float>(attrs.scale),
                            .dtype = q.dtype,
                            .q_stride = q.shape[1],
                            .k_stride = kv_stride,
                            .v_stride = kv_stride,
                            .out_stride = q_width,
                            .kv_batch_stride = kv_stride * kv_length,
                            .causal = false,
                            .softcap = static_cast<float>(attrs.softcap)};
  if constexpr (requires { node.out.greatest; }) shape.finds_greatest = node.out.greatest.present();
  if constexpr (requires { attrs.causal; }) {
    shape.causal = attrs.causal;
    shape.window = attrs.window;
    if (node.in.bias) {
      shape.bias_width = node.in.bias->shape[1];
      shape.bias_zero = attrs.bias_zero;
    }
  }
  return shape;
}

template <typename Op>
cpu::AttentionInputs attention_inputs(const Operands<Op>& at, const std::byte* q, const std::byte* k,
                                      const std::byte* v) {
  cpu::AttentionInputs inputs{.q = q, .k = k, .v = v, .kv_begin = at.in.kv_begin, .kv_end = at.in.kv_end};
  if constexpr (requires { at.in.bias; }) inputs.bias = at.in.bias;
  if constexpr (requires { at.in.sinks; }) inputs.sinks = at.in.sinks;
  return inputs;
}

// The byte at which v begins in a row [k | v].
inline int64_t value_offset(const graph::Value& kv) {
  return kv.segments[0] * size_of(kv.dtype);
}

}  // namespace strata::device
