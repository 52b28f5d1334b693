#include "ops/cross_attention/cross_attention.h"

#include "device/gpu/attention.h"

namespace strata::device {
namespace {

gpu::AttentionShape shape_of(const graph::Value& q, const ops::CrossAttentionAttrs& attrs, int64_t kv_width,
                             int64_t kv_length) {
  return {.dtype = q.dtype,
          .batch = q.shape[0] / attrs.sequence_length,
          .length = attrs.sequence_length,
          .kv_length = kv_length,
          .heads = q.shape[1] / attrs.head_dim,
          .kv_heads = kv_width / attrs.head_dim,
          .head_dim = attrs.head_dim,
          .value_dim = attrs.head_dim};
}
// Of queries and rows [k | v].
template <typename Op>
GpuAttention attention_to(const Bind<Op>& node) {
  const graph::Value &q = *node.in.q, &kv = *node.in.kv;
  return GpuAttention(shape_of(q, node.attrs, kv.segments[0], node.attrs.encoder_length),
                      {q.shape[1], kv.shape[1], kv.shape[1], q.shape[1]},
                      {.scale = node.attrs.scale, .softcap = node.attrs.softcap});
}
template <typename Op>
gpu::PlainAttentionArgs begin(const GpuAttention& attention, const Operands<Op>& at, int64_t k_bytes) {
  gpu::PlainAttentionArgs args =
      attention.begin(at.launch, at.scratch, {.kv_begin = at.in.kv_begin, .kv_end = at.in.kv_end});
  args.attention.q = at.in.q;
  args.attention.k = at.in.kv;
  args.attention.v = at.in.kv + k_bytes;
  return args;
}
int64_t bytes_of_keys(const graph::Value& kv) {
  return kv.segments[0] * size_of(kv.dtype);
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossAttention>& node) {
  const GpuAttention attention = attention_to(node);
  return node.kernel(
      [attention, k_bytes = bytes_of_keys(*node.in.kv)](const Operands<ops::CrossAttention>& at) {
        gpu::PlainAttentionArgs args = begin(attention, at, k_bytes);
        args.attention.out = at.out.out;
        args.attention.lse = at.out.lse;
        attention.forward(at.launch, args);
      },
      attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CrossAttentionGrad>& node) {
  GpuAttention attention = attention_to(node);
  const int64_t delta_at = attention.scratch().take(node.in.lse->bytes());
  return node.kernel(
      [attention, delta_at,
       k_bytes = bytes_of_keys(*node.in.kv)](const Operands<ops::CrossAttentionGrad>& at) {
        gpu::PlainAttentionArgs args = begin(attention, at, k_bytes);
        args.attention.out = const_cast<std::byte*>(at.in.out);  // backward only reads it
        args.attention.lse = const_cast<float*>(at.in.lse);
        args.attention.dout = at.in.dout;
        args.attention.delta = reinterpret_cast<float*>(at.scratch + delta_at);
        args.attention.dq = at.out.dq;
        args.attention.dk = at.out.dkv;
        args.attention.dv = at.out.dkv + k_bytes;
        attention.backward(at.launch, args);
      },
      attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CachedCrossAttention>& node) {
  const graph::Value &q = *node.in.q, &keys = *node.in.keys;
  GpuAttention attention(shape_of(q, node.attrs, keys.shape[2], keys.shape[1]),
                         {q.shape[1], keys.shape[2], keys.shape[2], q.shape[1]},
                         {.scale = node.attrs.scale, .softcap = node.attrs.softcap});
  const gpu::AttentionShape& shape = attention.shape();
  const int64_t lse_at =
      attention.scratch().take(shape.batch * shape.length * shape.heads * size_of(DType::kF32));
  return node.kernel(
      [attention, lse_at](const Operands<ops::CachedCrossAttention>& at) {
        gpu::PlainAttentionArgs args = attention.begin(
            at.launch, at.scratch, {.sequence_end = at.in.encoder_end, .entries = at.in.slot});
        args.attention.q = at.in.q;
        args.attention.k = at.in.keys;
        args.attention.v = at.in.values;
        args.attention.out = at.out.out;
        args.attention.lse = reinterpret_cast<float*>(at.scratch + lse_at);
        attention.forward(at.launch, args);
      },
      attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::StoreCross>& node) {
  const graph::Value &kv = *node.in.kv, &keys = *node.in.keys;
  gpu::CacheRowsArgs rows{};
  rows.stride = kv.shape[1];
  rows.length = static_cast<int32_t>(kv.shape[0] / node.in.slot->shape[0]);
  rows.capacity = static_cast<int32_t>(keys.shape[1]);
  rows.key_width = rows.value_width = static_cast<int32_t>(keys.shape[2]);
  return node.kernel(
      [rows, k_bytes = bytes_of_keys(kv),
       store = gpu::store_cache_rows(kv.dtype, kv.shape[0], rows)](const Operands<ops::StoreCross>& at) {
        gpu::CacheRowsArgs stored = rows;
        stored.key_cache = at.out.keys;
        stored.value_cache = at.out.values;
        stored.keys = at.in.kv;
        stored.values = at.in.kv + k_bytes;
        stored.entries = at.in.slot;
        start(at.launch, store, stored);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::DocumentEnds>& node) {
  const int64_t rows = node.in.q_begin->shape[0];
  return node.kernel(
      [rows, attrs = node.attrs, kernel = gpu::document_ends(rows)](const Operands<ops::DocumentEnds>& at) {
        start(at.launch, kernel,
              gpu::DocumentEndsArgs{.ends = at.out.ends,
                                    .q_begin = at.in.q_begin,
                                    .k_begin = at.in.k_begin,
                                    .rows = static_cast<int32_t>(rows),
                                    .length = static_cast<int32_t>(attrs.sequence_length),
                                    .kv_length = static_cast<int32_t>(attrs.encoder_length)});
      });
}

}  // namespace strata::device
