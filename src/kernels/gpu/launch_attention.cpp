#include <algorithm>

#include "kernels/gpu/launch.h"

namespace strata::gpu {
namespace {

// The head size that kernels exist for.
uint32_t padded(const AttentionShape& shape) {
  const int64_t most = std::max(shape.head_dim, shape.value_dim);
  for (const uint32_t dim : {32u, 64u, 96u, 128u, 192u}) {
    if (most <= dim) return dim;
  }
  return 256;
}

KernelLaunch over_heads(const AttentionShape& shape, std::string module, const std::string& kernel, int64_t blocks, int64_t heads) {
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

KernelLaunch attention_forward(const AttentionShape& shape) {
  const uint32_t dim = padded(shape), rows = dim <= 128 ? 128 : 64;
  KernelLaunch launch =
      over_heads(shape, "attention_forward", "attention_forward_" + std::to_string(dim) + (shape.softcap ? "_capped" : ""),
                 blocks_of(shape.length, rows), shape.heads);
  launch.threads = 128;
  launch.shared_bytes = (rows + 2 * 64) * dim * 2;
  return launch;
}

KernelLaunch attention_delta(const AttentionShape& shape) {
  KernelLaunch launch{.module = "attention_backward", .kernel = "attention_delta"};
  launch.grid_x = blocks_of(shape.batch * shape.length * shape.heads, 8);
  launch.threads = 256;
  return launch;
}

std::vector<KernelLaunch> attention_backward(const AttentionShape& shape) {
  const uint32_t dim = padded(shape);
  const std::string ending = "_" + std::to_string(dim) + (shape.softcap ? "_capped" : "");
  std::vector<KernelLaunch> launches{attention_delta(shape)};
  // As the shapes in attention_backward.cu.
  const uint32_t warps = dim == 96 || dim == 128 ? 8 : 4, keys = dim <= 128 ? 128 : 64, queries = dim == 96 || dim == 128 ? 64 : 32;
  for (const char* part : dim <= 128 ? std::vector<const char*>{"keys"} : std::vector<const char*>{"dk", "dv"}) {
    KernelLaunch launch = over_heads(shape, "attention_backward", std::string("attention_backward_") + part + ending,
                                     blocks_of(shape.kv_length, keys), shape.kv_heads);
    launch.threads = warps * 32;
    launch.shared_bytes = 2 * keys * dim * 2 + 2 * (2 * queries * dim * 2 + 2 * queries * 4);
    launches.push_back(launch);
  }
  const uint32_t rows = dim <= 128 ? 128 : 64, others = dim <= 64 ? 64 : 32;
  KernelLaunch launch =
      over_heads(shape, "attention_backward", "attention_backward_queries" + ending, blocks_of(shape.length, rows), shape.heads);
  launch.threads = 128;
  launch.shared_bytes = (2 * rows + 4 * others) * dim * 2;
  launches.push_back(launch);
  return launches;
}

}  // namespace strata::gpu
