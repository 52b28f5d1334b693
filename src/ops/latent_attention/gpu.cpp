#include "ops/latent_attention/latent_attention.h"

#include "device/gpu/attention.h"
#include "device/gpu/row_parts.h"

namespace strata::device {
namespace {

// Query (which may be absent), latent and rotated, side by side.
template <typename Side>
GpuRowParts parts_of(const graph::Value& down, const Side& side) {
  std::vector<GpuRowParts::Part> parts;
  int64_t first = 0;
  for (const graph::Ref* part : {&side.query, &side.latent, &side.rotated}) {
    const int64_t width = *part ? (*part)->shape[1] : 0;
    parts.push_back({first, width, width});
    first += width;
  }
  return {down.dtype, down.shape[0], down.shape[1], parts};
}

gpu::LatentHeadsArgs heads_of(const graph::Value& q, const ops::LatentAttrs& attrs) {
  gpu::LatentHeadsArgs args{};
  args.rows = q.shape[0];
  args.heads = static_cast<int32_t>(q.shape[1] / attrs.head_dim());
  args.plain = static_cast<int32_t>(attrs.plain_dim);
  args.rotary = static_cast<int32_t>(attrs.rotary_dim);
  args.value = static_cast<int32_t>(attrs.value_dim);
  return args;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::SplitLatents>& node) {
  return node.kernel([parts = parts_of(*node.in.down, node.out)](const Operands<ops::SplitLatents>& at) {
    parts.split(at.launch, at.in.down, {at.out.query, at.out.latent, at.out.rotated});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::JoinLatents>& node) {
  return node.kernel([parts = parts_of(*node.out.down, node.in)](const Operands<ops::JoinLatents>& at) {
    parts.join(at.launch, at.out.down, {at.in.query, at.in.latent, at.in.rotated});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::LatentHeads>& node) {
  const gpu::LatentHeadsArgs args = heads_of(*node.in.q, node.attrs);
  return node.kernel(
      [args, kernel = gpu::latent_heads(node.in.q->dtype, args)](const Operands<ops::LatentHeads>& at) {
        gpu::LatentHeadsArgs now = args;
        now.qkv = at.out.qkv;
        now.q = const_cast<std::byte*>(at.in.q);  // the three are only read
        now.kv = const_cast<std::byte*>(at.in.kv);
        now.rotated = const_cast<std::byte*>(at.in.rotated);
        start(at.launch, kernel, now);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::LatentHeadsGrad>& node) {
  const gpu::LatentHeadsArgs args = heads_of(*node.out.dq, node.attrs);
  return node.kernel([args, kernel = gpu::latent_heads_backward(node.in.dqkv->dtype, args)](
                         const Operands<ops::LatentHeadsGrad>& at) {
    gpu::LatentHeadsArgs now = args;
    now.qkv = const_cast<std::byte*>(at.in.dqkv);  // only read
    now.q = at.out.dq;
    now.kv = at.out.dkv;
    now.rotated = at.out.drotated;
    start(at.launch, kernel, now);
  });
}

namespace {

// Queries in units of latents (`absorb`), attention to the cache, whose rows are keys and, but for the rotated part,
// values, and values of what heads have mixed (`expand`). All heads of a token read the same keys: for attention they are
// rows of one head.
struct CachedLatents {
  int64_t rows, heads, rank, width;  // width: of a row of the cache
  int64_t plain_keys;                // rows of the weight
  DType dtype;
  int64_t length, capacity;
  GpuRowParts stored, rotated;
  GpuAttention attention;
  gpu::HeadProductsArgs absorb{}, expand{};
  gpu::KernelLaunch absorb_kernel, expand_kernel;
  int64_t queries_at, mixed_at, lse_at;

  explicit CachedLatents(const Bind<ops::CachedLatentAttention>& node)
      : rows(node.in.q->shape[0]),
        heads(node.in.q->shape[1] / node.attrs.head_dim()),
        rank(node.in.latent->shape[1]),
        width(rank + node.attrs.rotary_dim),
        plain_keys(heads * node.attrs.plain_dim),
        dtype(node.in.q->dtype),
        length(node.attrs.sequence_length),
        capacity(node.in.cache->shape[1]),
        stored(dtype, rows, width, {{0, rank, rank}, {rank, width - rank, width - rank}}),
        rotated(dtype, rows * heads, width, {{rank, width - rank, node.attrs.head_dim()}}),
        attention({.dtype = dtype,
                   .batch = rows / length,
                   .length = length * heads,
                   .kv_length = capacity,
                   .heads = 1,
                   .kv_heads = 1,
                   .head_dim = width,
                   .value_dim = rank},
                  {width, width, width, rank}, {.scale = node.attrs.scale, .causal = true, .repeat = heads}) {
    const ops::LatentAttrs& attrs = node.attrs;
    absorb.a_stride = heads * attrs.head_dim();
    absorb.a_head = static_cast<int32_t>(attrs.head_dim());
    absorb.b_stride = attrs.plain_dim * rank;
    absorb.c_stride = heads * width;
    absorb.c_head = static_cast<int32_t>(width);
    absorb.n = static_cast<int32_t>(rank);
    absorb.k = static_cast<int32_t>(attrs.plain_dim);
    expand.a_stride = heads * rank;
    expand.a_head = static_cast<int32_t>(rank);
    expand.b_stride = attrs.value_dim * rank;
    expand.c_stride = heads * attrs.value_dim;
    expand.c_head = static_cast<int32_t>(attrs.value_dim);
    expand.n = static_cast<int32_t>(attrs.value_dim);
    expand.k = static_cast<int32_t>(rank);
    expand.transposed = 1;
    absorb.rows = expand.rows = static_cast<int32_t>(rows);
    absorb_kernel = gpu::head_products(dtype, heads, absorb);
    expand_kernel = gpu::head_products(dtype, heads, expand);
    queries_at = attention.scratch().take(rows * heads * width * size_of(dtype));
    mixed_at = attention.scratch().take(rows * heads * rank * size_of(dtype));
    lse_at = attention.scratch().take(rows * heads * size_of(DType::kF32));
  }

  void run(const Operands<ops::CachedLatentAttention>& at) const {
    std::byte *const queries = at.scratch + queries_at, *const mixed = at.scratch + mixed_at;
    stored.store(at.launch, at.out.cache, {at.in.latent, at.in.rotated}, at.in.slot, at.in.position, length,
                 capacity);
    gpu::HeadProductsArgs product = absorb;
    product.a = at.in.q;
    product.b = at.in.weight;
    product.c = queries;
    start(at.launch, absorb_kernel, product);
    rotated.join(at.launch, queries, {at.in.q + absorb.k * size_of(dtype)});
    gpu::PlainAttentionArgs args =
        attention.begin(at.launch, at.scratch, {.position = at.in.position, .entries = at.in.slot});
    args.attention.q = queries;
    args.attention.k = args.attention.v = at.out.cache;
    args.attention.out = mixed;
    args.attention.lse = reinterpret_cast<float*>(at.scratch + lse_at);
    attention.forward(at.launch, args);
    product = expand;
    product.a = mixed;
    product.b = at.in.weight + plain_keys * rank;
    product.c = at.out.out;
    start(at.launch, expand_kernel, product);
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::CachedLatentAttention>& node) {
  if (node.in.chosen) not_yet(ops::CachedLatentAttention::def.name, "to chosen keys");
  const CachedLatents latents(node);
  return node.kernel([latents](const Operands<ops::CachedLatentAttention>& at) { latents.run(at); },
                     latents.attention.scratch().bytes());
}

}  // namespace strata::device
