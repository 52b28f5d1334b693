#include "ops/attention/attention.h"

#include "device/gpu/attention.h"

namespace strata::device {
namespace {

// The parts of a node's rows [q | k | v]. With a cache the keys and values are those of its entries.
struct Attended {
  GpuAttention attention;
  int64_t k_bytes, v_bytes;  // where k and v begin in a row
  int64_t lse_at = 0, delta_at = 0, bias_at = 0;

  template <typename Op>
  static constexpr bool kCached = std::is_same_v<Op, ops::CachedAttention>;

  template <typename Op>
  explicit Attended(const Bind<Op>& node)
      : attention(shape_of(node), strides_of(node), form_of(node)),
        k_bytes(node.in.qkv->segments[0] * size_of(node.in.qkv->dtype)),
        v_bytes(k_bytes + node.in.qkv->segments[1] * size_of(node.in.qkv->dtype)) {}

  template <typename Op>
  static gpu::AttentionShape shape_of(const Bind<Op>& node) {
    const graph::Value& qkv = *node.in.qkv;
    const ops::AttentionAttrs& attrs = node.attrs;
    gpu::AttentionShape shape{.dtype = qkv.dtype,
                              .batch = qkv.shape[0] / attrs.sequence_length,
                              .length = attrs.sequence_length,
                              .kv_length = attrs.sequence_length,
                              .heads = qkv.segments[0] / attrs.head_dim,
                              .kv_heads = qkv.segments[1] / attrs.head_dim,
                              .head_dim = attrs.head_dim,
                              .value_dim = attrs.size_of_value()};
    if constexpr (kCached<Op>) shape.kv_length = node.in.keys->shape[1];
    return shape;
  }
  template <typename Op>
  static GpuAttention::Strides strides_of(const Bind<Op>& node) {
    const int64_t row = node.in.qkv->shape[1];
    GpuAttention::Strides strides{row, row, row, node.out.out->shape[1]};
    if constexpr (kCached<Op>) strides.k = node.in.keys->shape[2], strides.v = node.in.values->shape[2];
    return strides;
  }
  static GpuAttention::Strides strides_of(const Bind<ops::AttentionGrad>& node) {
    const int64_t row = node.in.qkv->shape[1];
    return {row, row, row, node.in.out->shape[1]};
  }
  template <typename Op>
  static GpuAttention::Form form_of(const Bind<Op>& node) {
    const ops::AttentionAttrs& attrs = node.attrs;
    return {.scale = attrs.scale,
            .softcap = attrs.softcap,
            .causal = attrs.causal,
            .chunked = attrs.chunked,
            .window = attrs.window,
            .bias_width = node.in.bias ? node.in.bias->shape[1] : 0,
            .bias_zero = attrs.bias_zero};
  }

  // The arguments of a call, after its ranges.
  template <typename Op>
  gpu::PlainAttentionArgs begin(const Operands<Op>& at) const {
    GpuAttentionInputs in{.bias = at.in.bias};
    if constexpr (kCached<Op>) {
      in.position = at.in.position;
      in.entries = at.in.slot;
    } else {
      in.kv_begin = at.in.kv_begin;
      in.kv_end = at.in.kv_end;
    }
    gpu::PlainAttentionArgs now = attention.begin(at.launch, at.scratch, in);
    now.attention.q = at.in.qkv;
    now.attention.k = at.in.qkv + k_bytes;
    now.attention.v = at.in.qkv + v_bytes;
    return now;
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Attention>& node) {
  if (node.out.greatest) not_yet(ops::Attention::def.name, "with greatest scores");
  const Attended attended(node);
  return node.kernel(
      [attended](const Operands<ops::Attention>& at) {
        gpu::PlainAttentionArgs args = attended.begin(at);
        args.attention.out = at.out.out;
        args.attention.lse = at.out.lse;
        args.attention.sinks = at.in.sinks;
        attended.attention.forward(at.launch, args);
      },
      attended.attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::AttentionGrad>& node) {
  Attended attended(node);
  GpuScratch& scratch = attended.attention.scratch();
  attended.delta_at = scratch.take(node.in.lse->bytes());
  attended.bias_at = scratch.take(attended.attention.bias_parts_bytes());
  return node.kernel(
      [attended](const Operands<ops::AttentionGrad>& at) {
        gpu::PlainAttentionArgs args = attended.begin(at);
        args.attention.out = const_cast<std::byte*>(at.in.out);  // backward only reads it
        args.attention.lse = const_cast<float*>(at.in.lse);
        args.attention.dout = at.in.dout;
        args.attention.delta = reinterpret_cast<float*>(at.scratch + attended.delta_at);
        args.attention.dq = at.out.dqkv;
        args.attention.dk = at.out.dqkv + attended.k_bytes;
        args.attention.dv = at.out.dqkv + attended.v_bytes;
        attended.attention.backward(at.launch, args, at.out.dbias, at.scratch + attended.bias_at);
      },
      attended.attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CachedAttention>& node) {
  Attended attended(node);
  const gpu::AttentionShape& shape = attended.attention.shape();
  attended.lse_at =
      attended.attention.scratch().take(shape.batch * shape.length * shape.heads * size_of(DType::kF32));
  gpu::CacheRowsArgs rows{};
  rows.stride = node.in.qkv->shape[1];
  rows.length = static_cast<int32_t>(shape.length);
  rows.capacity = static_cast<int32_t>(shape.kv_length);
  rows.key_width = static_cast<int32_t>(node.in.keys->shape[2]);
  rows.value_width = static_cast<int32_t>(node.in.values->shape[2]);
  return node.kernel(
      [attended, rows, store = gpu::store_cache_rows(shape.dtype, node.in.qkv->shape[0], rows)](
          const Operands<ops::CachedAttention>& at) {
        gpu::CacheRowsArgs stored = rows;
        stored.key_cache = at.out.keys;
        stored.value_cache = at.out.values;
        stored.keys = at.in.qkv + attended.k_bytes;
        stored.values = at.in.qkv + attended.v_bytes;
        stored.position = at.in.position;
        stored.entries = at.in.slot;
        start(at.launch, store, stored);
        gpu::PlainAttentionArgs args = attended.begin(at);
        args.attention.k = at.out.keys;
        args.attention.v = at.out.values;
        args.attention.out = at.out.out;
        args.attention.lse = reinterpret_cast<float*>(at.scratch + attended.lse_at);
        args.attention.sinks = at.in.sinks;
        attended.attention.forward(at.launch, args);
      },
      attended.attention.scratch().bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SinkGrad>& node) {
  const graph::Value &out = *node.in.out, &lse = *node.in.lse;
  const int64_t dim = node.attrs.head_dim;
  const gpu::AttentionShape shape{.dtype = out.dtype,
                                  .batch = lse.shape[0],
                                  .length = lse.shape[2],
                                  .kv_length = lse.shape[2],
                                  .heads = lse.shape[1],
                                  .kv_heads = lse.shape[1],
                                  .head_dim = dim,
                                  .value_dim = dim};
  const bool plain = gpu::needs_plain_attention(shape, false, true);
  return node.kernel(
      [shape, dim, stride = out.shape[1],
       delta = plain ? gpu::plain_attention_delta(shape) : gpu::attention_delta(shape),
       kernel = gpu::sink_gradient(shape), adds = node.adds.dsinks](const Operands<ops::SinkGrad>& at) {
        gpu::AttentionArgs args{};
        args.out = const_cast<std::byte*>(at.in.out);  // only read
        args.dout = at.in.dout;
        args.delta = reinterpret_cast<float*>(at.scratch);
        args.out_stride = stride;
        args.batch = static_cast<int32_t>(shape.batch);
        args.length = static_cast<int32_t>(shape.length);
        args.heads = static_cast<int32_t>(shape.heads);
        args.value_dim = static_cast<int32_t>(dim);
        start(at.launch, delta, args);
        if (!adds) gpu_queue(at.launch).clear(at.out.dsinks, shape.heads * size_of(DType::kF32));
        start(at.launch, kernel,
              gpu::SinkGradArgs{.dsinks = at.out.dsinks,
                                .sinks = at.in.sinks,
                                .lse = at.in.lse,
                                .delta = args.delta,
                                .batch = args.batch,
                                .heads = args.heads,
                                .length = args.length});
      },
      lse.bytes());
}

}  // namespace strata::device
