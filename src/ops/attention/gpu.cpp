#include "ops/attention/attention.h"

#include "base/error.h"
#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

// The parts of a node's rows [q | k | v], and what each row sees, which each call finds again. With a cache the keys and
// values are those of its entries.
struct Attended {
  gpu::AttentionShape shape;
  gpu::AttentionArgs args{};
  int64_t k_bytes = 0, v_bytes = 0;  // where k and v begin in a row
  bool causal = false, chunked = false;
  int32_t window = 0;
  GpuScratch scratch;
  int64_t rows_at = 0, tiles_at = 0, delta_at = 0, lse_at = 0;

  template <typename Op>
  static constexpr bool kCached = std::is_same_v<Op, ops::CachedAttention>;

  template <typename Op>
  explicit Attended(const Bind<Op>& node) {
    const graph::Value& qkv = *node.in.qkv;
    const ops::AttentionAttrs& attrs = node.attrs;
    const std::string_view name = Op::def.name;
    if (node.in.bias) not_yet(name, "with a bias by distance");
    const int64_t size = size_of(qkv.dtype), length = attrs.sequence_length;
    shape = {.dtype = qkv.dtype,
             .batch = qkv.shape[0] / length,
             .length = length,
             .kv_length = length,
             .heads = qkv.segments[0] / attrs.head_dim,
             .kv_heads = qkv.segments[1] / attrs.head_dim,
             .head_dim = attrs.head_dim,
             .value_dim = attrs.size_of_value(),
             .softcap = attrs.softcap > 0};
    if (shape.head_dim > 256 || shape.value_dim > 256)
      not_yet(name, fmt::format("with heads of {}", shape.head_dim));
    const bool vectors = qkv.shape[1] % 8 == 0 && shape.head_dim % 8 == 0 && shape.value_dim % 8 == 0;
    if (qkv.dtype == DType::kBF16 && !vectors)
      not_yet(name, fmt::format("in bf16 with heads of {} in rows of {}, no multiples of 8", shape.head_dim,
                                qkv.shape[1]));
    k_bytes = qkv.segments[0] * size;
    v_bytes = k_bytes + qkv.segments[1] * size;
    causal = attrs.causal;
    chunked = attrs.chunked;
    window = static_cast<int32_t>(attrs.window);
    args.q_stride = args.k_stride = args.v_stride = qkv.shape[1];
    args.out_stride = shape.heads * shape.value_dim;
    args.batch = static_cast<int32_t>(shape.batch);
    args.length = args.kv_length = static_cast<int32_t>(length);
    args.heads = static_cast<int32_t>(shape.heads);
    args.kv_heads = static_cast<int32_t>(shape.kv_heads);
    args.head_dim = static_cast<int32_t>(shape.head_dim);
    args.value_dim = static_cast<int32_t>(shape.value_dim);
    if constexpr (kCached<Op>) {
      const Shape &keys = node.in.keys->shape, &values = node.in.values->shape;
      shape.kv_length = keys[1];
      args.kv_length = static_cast<int32_t>(keys[1]);
      args.k_stride = keys[2];
      args.v_stride = values[2];
      if (qkv.dtype == DType::kBF16 && (keys[2] % 8 != 0 || values[2] % 8 != 0))
        not_yet(name, fmt::format("in bf16 with a cache of rows of {}, no multiple of 8", keys[2]));
      lse_at = scratch.take(shape.batch * length * shape.heads * size_of(DType::kF32));
    }
    args.scale = static_cast<float>(attrs.scale);
    args.softcap = static_cast<float>(attrs.softcap);
    const int64_t tiles = (length + 63) / 64;
    rows_at = scratch.take(shape.batch * length * 2 * size_of(DType::kI32));
    tiles_at = scratch.take(shape.batch * tiles * 4 * size_of(DType::kI32));
  }

  // The arguments of a call, after its ranges.
  template <typename Op>
  gpu::AttentionArgs begin(const Operands<Op>& at) const {
    gpu::AttentionArgs now = args;
    now.q = at.in.qkv;
    now.k = at.in.qkv + k_bytes;
    now.v = at.in.qkv + v_bytes;
    auto* const rows = reinterpret_cast<int32_t*>(at.scratch + rows_at);
    auto* const tiles = reinterpret_cast<int32_t*>(at.scratch + tiles_at);
    now.rows = rows;
    now.tiles = tiles;
    gpu::AttentionRangesArgs ranges{.rows = rows,
                                    .tiles = tiles,
                                    .kv_begin = nullptr,
                                    .kv_end = nullptr,
                                    .position = nullptr,
                                    .batch = args.batch,
                                    .length = args.length,
                                    .kv_length = args.kv_length,
                                    .causal = causal ? 1 : 0,
                                    .window = window,
                                    .chunked = chunked ? 1 : 0};
    if constexpr (kCached<Op>) {
      now.k = at.out.keys;
      now.v = at.out.values;
      now.entries = at.in.slot;
      ranges.position = at.in.position;
    } else {
      ranges.kv_begin = at.in.kv_begin;
      ranges.kv_end = at.in.kv_end;
    }
    start(at.launch, gpu::attention_ranges(shape), ranges);
    return now;
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Attention>& node) {
  const Attended attended(node);
  return node.kernel(
      [attended, kernel = gpu::attention_forward(attended.shape)](const Operands<ops::Attention>& at) {
        gpu::AttentionArgs args = attended.begin(at);
        args.out = at.out.out;
        args.lse = at.out.lse;
        args.sinks = at.in.sinks;
        start(at.launch, kernel, args);
      },
      attended.scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::AttentionGrad>& node) {
  Attended attended(node);
  attended.delta_at = attended.scratch.take(node.in.lse->bytes());
  return node.kernel(
      [attended, kernels = gpu::attention_backward(attended.shape)](const Operands<ops::AttentionGrad>& at) {
        gpu::AttentionArgs args = attended.begin(at);
        args.out = const_cast<std::byte*>(at.in.out);  // backward only reads it
        args.lse = const_cast<float*>(at.in.lse);
        args.dout = at.in.dout;
        args.delta = reinterpret_cast<float*>(at.scratch + attended.delta_at);
        args.dq = at.out.dqkv;
        args.dk = at.out.dqkv + attended.k_bytes;
        args.dv = at.out.dqkv + attended.v_bytes;
        for (const gpu::KernelLaunch& kernel : kernels) start(at.launch, kernel, args);
      },
      attended.scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::CachedAttention>& node) {
  const Attended attended(node);
  const gpu::CacheRowsArgs rows{.key_cache = nullptr,
                                .value_cache = nullptr,
                                .keys = nullptr,
                                .values = nullptr,
                                .position = nullptr,
                                .entries = nullptr,
                                .stride = attended.args.q_stride,
                                .length = attended.args.length,
                                .capacity = attended.args.kv_length,
                                .key_width = static_cast<int32_t>(attended.args.k_stride),
                                .value_width = static_cast<int32_t>(attended.args.v_stride)};
  return node.kernel(
      [attended, rows, kernel = gpu::attention_forward(attended.shape),
       store = gpu::store_cache_rows(attended.shape.dtype, node.in.qkv->shape[0], rows)](
          const Operands<ops::CachedAttention>& at) {
        gpu::CacheRowsArgs stored = rows;
        stored.key_cache = at.out.keys;
        stored.value_cache = at.out.values;
        stored.keys = at.in.qkv + attended.k_bytes;
        stored.values = at.in.qkv + attended.v_bytes;
        stored.position = at.in.position;
        stored.entries = at.in.slot;
        start(at.launch, store, stored);
        gpu::AttentionArgs args = attended.begin(at);
        args.out = at.out.out;
        args.lse = reinterpret_cast<float*>(at.scratch + attended.lse_at);
        args.sinks = at.in.sinks;
        start(at.launch, kernel, args);
      },
      attended.scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SinkGrad>& node) {
  const graph::Value &out = *node.in.out, &lse = *node.in.lse;
  const auto dim = static_cast<int32_t>(node.attrs.head_dim);
  const gpu::AttentionShape shape{.dtype = out.dtype,
                                  .batch = lse.shape[0],
                                  .length = lse.shape[2],
                                  .kv_length = lse.shape[2],
                                  .heads = lse.shape[1],
                                  .kv_heads = lse.shape[1],
                                  .head_dim = dim,
                                  .value_dim = dim};
  if (out.dtype == DType::kBF16 && dim % 8 != 0)
    not_yet(ops::SinkGrad::def.name, fmt::format("in bf16 with heads of {}, no multiple of 8", dim));
  return node.kernel(
      [shape, dim, stride = out.shape[1], delta = gpu::attention_delta(shape),
       kernel = gpu::sink_gradient(shape), adds = node.adds.dsinks](const Operands<ops::SinkGrad>& at) {
        gpu::AttentionArgs args{};
        args.out = const_cast<std::byte*>(at.in.out);  // only read
        args.dout = at.in.dout;
        args.delta = reinterpret_cast<float*>(at.scratch);
        args.out_stride = stride;
        args.batch = static_cast<int32_t>(shape.batch);
        args.length = static_cast<int32_t>(shape.length);
        args.heads = static_cast<int32_t>(shape.heads);
        args.value_dim = dim;
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
