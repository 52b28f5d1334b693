#include <algorithm>

#include "kernels/gpu/launch.h"

namespace strata::gpu {
namespace {

// The smallest head size that has kernels and fits.
uint32_t padded(const AttentionShape& shape) {
  const int64_t most = std::max(shape.head_dim, shape.value_dim);
  for (const uint32_t dim : {32u, 64u, 96u, 128u, 192u}) {
    if (most <= dim) return dim;
  }
  return 256;
}

KernelLaunch over_heads(const AttentionShape& shape, std::string module, const std::string& kernel,
                        int64_t blocks, int64_t heads) {
  return {.module = std::move(module),
          .kernel = kernel,
          .grid_x = static_cast<uint32_t>(blocks),
          .grid_y = static_cast<uint32_t>(heads),
          .grid_z = static_cast<uint32_t>(shape.batch)};
}

}  // namespace

KernelLaunch attention_ranges(const AttentionShape& shape) {
  KernelLaunch launch{.module = "attention_ranges", .kernel = "attention_ranges"};
  launch.grid_x = blocks_of(shape.length, 64);
  launch.grid_y = static_cast<uint32_t>(shape.batch);
  launch.threads = 64;
  return launch;
}

// fp32, with the tiles of attention_f32.cu. `tiles`, `weights`: the number of 32-row tiles and of weight
// matrices in a block's shared memory.
KernelLaunch plain_attention(const AttentionShape& shape, const std::string& part, int64_t length,
                             int64_t heads, uint32_t tiles, uint32_t weights) {
  const int64_t most = std::max(shape.head_dim, shape.value_dim);
  const uint32_t dim = most <= 64 ? 64 : most <= 128 ? 128 : 256, others = dim > 128 ? 32 : 64;
  KernelLaunch launch =
      over_heads(shape, "attention_f32", "attention_f32_" + part + "_" + std::to_string(dim),
                 blocks_of(length, 32), heads);
  launch.threads = 128;
  launch.shared_bytes = ((tiles * 32 + 2 * others) * (dim + 4) + weights * 32 * (others + 4)) * 4;
  return launch;
}

KernelLaunch attention_forward(const AttentionShape& shape) {
  if (shape.dtype == DType::kF32) return plain_attention(shape, "forward", shape.length, shape.heads, 1, 1);
  // Must match the shapes in attention_forward.cu.
  const uint32_t dim = padded(shape), rows = dim <= 128 ? 128 : 64,
                 keys = shape.softcap ? (dim == 96 || dim == 128 ? 32 : 64) : (dim == 64 ? 128 : 64);
  KernelLaunch launch =
      over_heads(shape, "attention_forward",
                 "attention_forward_" + std::to_string(dim) + (shape.softcap ? "_capped" : ""),
                 blocks_of(shape.length, rows), shape.heads);
  launch.threads = 128;
  launch.shared_bytes = (rows + 2 * keys) * dim * 2;
  return launch;
}

KernelLaunch store_cache_rows(DType dtype, int64_t rows, const CacheRowsArgs& args) {
  const int64_t count = 16 / size_of(dtype);
  const bool vectors =
      args.stride % count == 0 && args.key_width % count == 0 && args.value_width % count == 0;
  KernelLaunch launch{.module = "attention_cache",
                      .kernel = std::string("store_cache_rows") + (dtype == DType::kBF16 ? "_bf16" : "_f32") +
                                (vectors ? "" : "_any")};
  launch.grid_x = static_cast<uint32_t>(rows);
  launch.grid_y = blocks_of(int64_t{args.key_width} + args.value_width, 128 * (vectors ? count : 1));
  launch.threads = 128;
  return launch;
}

KernelLaunch attention_delta(const AttentionShape& shape) {
  const bool plain = shape.dtype == DType::kF32;
  KernelLaunch launch{.module = plain ? "attention_f32" : "attention_backward",
                      .kernel = plain ? "attention_f32_delta" : "attention_delta"};
  launch.grid_x = blocks_of(shape.batch * shape.length * shape.heads, 8);
  launch.threads = 256;
  return launch;
}

KernelLaunch sink_gradient(const AttentionShape& shape) {
  return {.module = "attention_sinks",
          .kernel = "attention_sink_gradient",
          .grid_x = static_cast<uint32_t>(shape.heads),
          .threads = 1024};
}

std::vector<KernelLaunch> attention_backward(const AttentionShape& shape) {
  std::vector<KernelLaunch> launches{attention_delta(shape)};
  if (shape.dtype == DType::kF32) {
    launches.push_back(plain_attention(shape, "backward_keys", shape.kv_length, shape.kv_heads, 2, 2));
    launches.push_back(plain_attention(shape, "backward_queries", shape.length, shape.heads, 2, 1));
    return launches;
  }
  const uint32_t dim = padded(shape);
  const std::string ending = "_" + std::to_string(dim) + (shape.softcap ? "_capped" : "");
  // Must match the shapes in attention_backward.cu.
  const uint32_t keys = dim == 32 ? 128 : 64,
                 queries = dim == 32 || dim > 128 || (dim == 128 && shape.softcap) ? 32 : 64;
  for (const char* part :
       dim <= 128 ? std::vector<const char*>{"keys"} : std::vector<const char*>{"dk", "dv"}) {
    KernelLaunch launch =
        over_heads(shape, "attention_backward", std::string("attention_backward_") + part + ending,
                   blocks_of(shape.kv_length, keys), shape.kv_heads);
    launch.threads = 128;
    launch.shared_bytes = 2 * keys * dim * 2 + 2 * (2 * queries * dim * 2 + 2 * queries * 4);
    launches.push_back(launch);
  }
  const uint32_t rows = dim <= 128 ? 128 : 64, others = dim <= 64 ? 64 : 32;
  KernelLaunch launch = over_heads(shape, "attention_backward", "attention_backward_queries" + ending,
                                   blocks_of(shape.length, rows), shape.heads);
  launch.threads = 128;
  launch.shared_bytes = (2 * rows + 4 * others) * dim * 2;
  launches.push_back(launch);
  return launches;
}

std::optional<AttentionMapsPlan> plan_attention_maps(const AttentionShape& shape, const AttentionArgs& args) {
  const int64_t dim = shape.head_dim;
  if (shape.dtype != DType::kBF16 || (dim != 64 && dim != 128) || shape.value_dim != dim || shape.softcap)
    return std::nullopt;
  const int64_t rows = shape.batch * shape.length, kv_rows = shape.batch * shape.kv_length;
  const MatrixMap of_queries{
      .rows = rows, .columns = shape.heads * dim, .stride = args.q_stride, .box_rows = 64},
      of_keys{.rows = kv_rows, .columns = shape.kv_heads * dim, .stride = args.k_stride, .box_rows = 64};
  AttentionMapsPlan plan{.forward = {},
                         .delta = attention_delta(shape),
                         .backward = {},
                         .q_map = of_queries,
                         .k_map = of_keys,
                         .v_map = of_keys,
                         .dout_map = of_queries};
  plan.v_map.stride = args.v_stride, plan.dout_map.stride = args.out_stride;
  const std::string ending = "_" + std::to_string(dim);
  const auto bytes = static_cast<uint32_t>(dim) * 2;
  // Must match the shapes in attention_wgmma.cu.
  const uint32_t groups = dim == 64 ? 3 : 2;
  plan.forward = over_heads(shape, "attention_wgmma", "attention_wgmma" + ending,
                            blocks_of(shape.length, groups * 64), shape.heads);
  plan.forward.threads = (groups + 1) * 128;
  plan.forward.shared_bytes = (groups * 64 + 4 * 128) * bytes + 128;
  // Must match those in attention_backward_wgmma.cu.
  for (const bool keys : {true, false}) {
    KernelLaunch launch = over_heads(shape, "attention_backward_wgmma",
                                     (keys ? "attention_wgmma_keys" : "attention_wgmma_queries") + ending,
                                     blocks_of(keys ? shape.kv_length : shape.length, 128),
                                     keys ? shape.kv_heads : shape.heads);
    const uint32_t others = keys || dim == 128 ? 64 : 128;
    launch.threads = 384;
    launch.shared_bytes = 2 * 128 * bytes + 3 * (2 * others * bytes + 1024) + 128;
    plan.backward.push_back(launch);
  }
  return plan;
}

}  // namespace strata::gpu
