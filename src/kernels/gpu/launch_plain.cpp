#include "kernels/gpu/launch_plain.h"

#include <algorithm>

namespace strata::gpu {
namespace {

std::string suffix_of(DType dtype) {
  return dtype == DType::kBF16 ? "_bf16" : "_f32";
}
// A kernel whose threads have an element each.
KernelLaunch over_elements(const std::string& module, const std::string& kernel, int64_t n,
                           uint32_t threads) {
  KernelLaunch launch{.module = module, .kernel = kernel};
  launch.grid_x = blocks_of(n, threads);
  launch.threads = threads;
  return launch;
}

// Must match attention_plain.cu.
constexpr int64_t kTileRows = 32;
int64_t columns_of(int64_t dim) {
  return dim <= 64 ? 64 : 256;
}
uint32_t shared_bytes_of(int64_t columns) {
  return static_cast<uint32_t>((2 * kTileRows * 68 + kTileRows * 36 + kTileRows * (columns + 4)) * 4);
}
// Columns of a result are alike for all results of a shape.
int64_t columns_of(const AttentionShape& shape) {
  return columns_of(std::max(shape.head_dim, shape.value_dim));
}

KernelLaunch plain_attention(const AttentionShape& shape, const std::string& part, int64_t length,
                             int64_t heads, int64_t dim) {
  const int64_t columns = columns_of(shape);
  KernelLaunch launch{
      .module = "attention_plain",
      .kernel = "attention_plain_" + part + suffix_of(shape.dtype) + "_" + std::to_string(columns)};
  launch.grid_x = blocks_of(length, kTileRows);
  launch.grid_y = static_cast<uint32_t>(heads);
  launch.grid_z = static_cast<uint32_t>(shape.batch * plain_slices(shape, dim));
  launch.threads = 128;
  launch.shared_bytes = shared_bytes_of(columns);
  return launch;
}

}  // namespace

bool needs_plain_attention(const AttentionShape& shape, bool bias, bool rows_of_16_bytes) {
  const bool whole = rows_of_16_bytes && shape.head_dim % 8 == 0 && shape.value_dim % 8 == 0;
  return bias || shape.head_dim > 256 || shape.value_dim > 256 || (shape.dtype == DType::kBF16 && !whole);
}
int32_t plain_slices(const AttentionShape& shape, int64_t dim) {
  return static_cast<int32_t>(blocks_of(dim, columns_of(shape)));
}
KernelLaunch plain_attention_forward(const AttentionShape& shape) {
  return plain_attention(shape, "forward", shape.length, shape.heads, shape.value_dim);
}
KernelLaunch plain_attention_delta(const AttentionShape& shape) {
  KernelLaunch launch{.module = "attention_plain",
                      .kernel = "attention_plain_delta" + suffix_of(shape.dtype)};
  launch.grid_x = blocks_of(shape.batch * shape.length * shape.heads, 8);
  launch.threads = 256;
  return launch;
}
PlainAttentionBackward plain_attention_backward(const AttentionShape& shape) {
  return {.dq = plain_attention(shape, "queries", shape.length, shape.heads, shape.head_dim),
          .dk = plain_attention(shape, "dk", shape.kv_length, shape.kv_heads, shape.head_dim),
          .dv = plain_attention(shape, "dv", shape.kv_length, shape.kv_heads, shape.value_dim),
          .of_dim = plain_slices(shape, shape.head_dim),
          .of_value = plain_slices(shape, shape.value_dim)};
}
BiasGradientPlan plain_bias_gradient(const AttentionShape& shape, int64_t width) {
  BiasGradientPlan plan;
  // Enough blocks to fill any device, but few numbers to add.
  plan.count = static_cast<int32_t>(std::min<int64_t>(shape.batch * blocks_of(shape.length, kTileRows), 64));
  plan.parts = {.module = "attention_plain", .kernel = "attention_plain_bias" + suffix_of(shape.dtype)};
  plan.parts.grid_x = static_cast<uint32_t>(plan.count);
  plan.parts.grid_y = static_cast<uint32_t>(shape.heads);
  plan.parts.threads = 128;
  plan.parts.shared_bytes = shared_bytes_of(64);
  plan.sum = column_parts(shape.heads * width);
  return plan;
}

KernelLaunch relative_bias(int64_t width, int64_t heads) {
  KernelLaunch launch = over_elements("relative_bias", "relative_bias", width, 128);
  launch.grid_y = static_cast<uint32_t>(heads);
  return launch;
}
KernelLaunch relative_bias_backward(int64_t buckets, int64_t heads) {
  KernelLaunch launch{.module = "relative_bias", .kernel = "relative_bias_backward"};
  launch.grid_x = static_cast<uint32_t>(buckets);
  launch.grid_y = static_cast<uint32_t>(heads);
  launch.threads = 32;
  return launch;
}
KernelLaunch document_ends(int64_t rows) {
  return over_elements("relative_bias", "document_ends", rows, 128);
}
KernelLaunch row_parts(int64_t unit, int64_t rows, int64_t width) {
  KernelLaunch launch{.module = "latents", .kernel = "row_parts_" + std::to_string(unit)};
  launch.grid_x = static_cast<uint32_t>(rows);
  launch.grid_y = blocks_of(width, 256);
  launch.threads = 256;
  return launch;
}

namespace {

KernelLaunch of_latent_heads(const std::string& name, DType dtype, const LatentHeadsArgs& args,
                             int64_t width) {
  int64_t count = 16 / size_of(dtype);
  for (const int32_t part : {args.plain, args.rotary, args.value})
    if (part % count != 0) count = 1;
  KernelLaunch launch{.module = "latents", .kernel = name + suffix_of(dtype) + (count == 1 ? "_any" : "")};
  launch.grid_x = static_cast<uint32_t>(args.rows);
  launch.grid_y = blocks_of(width, 256 * count);
  launch.threads = 256;
  return launch;
}

}  // namespace

KernelLaunch latent_heads(DType dtype, const LatentHeadsArgs& args) {
  const int64_t width = int64_t{args.heads} * (2 * (args.plain + args.rotary) + args.value);
  return of_latent_heads("latent_heads", dtype, args, width);
}
KernelLaunch latent_heads_backward(DType dtype, const LatentHeadsArgs& args) {
  const int64_t width = int64_t{args.heads} * (2 * args.plain + args.rotary + args.value) + args.rotary;
  return of_latent_heads("latent_heads_backward", dtype, args, width);
}
KernelLaunch head_products(DType dtype, int64_t heads, const HeadProductsArgs& args) {
  KernelLaunch launch{.module = "latents", .kernel = "head_products" + suffix_of(dtype)};
  launch.grid_x = blocks_of(args.n, 64);
  launch.grid_y = blocks_of(args.rows, 32);
  launch.grid_z = static_cast<uint32_t>(heads);
  launch.threads = 128;
  return launch;
}

namespace {

std::string wide_norm(NormKind kind, const std::string& part, DType dtype) {
  return (kind == NormKind::kRms ? "rms_norm_wide_" : "layer_norm_wide_") + part + suffix_of(dtype);
}
uint32_t wide_threads(int64_t dim) {
  return std::clamp(blocks_of(dim, 32) * 32, 32u, 512u);
}

}  // namespace

KernelLaunch wide_norm_forward(NormKind kind, DType dtype, int64_t rows, int64_t dim) {
  return {.module = "norm_wide",
          .kernel = wide_norm(kind, "forward", dtype),
          .grid_x = static_cast<uint32_t>(rows),
          .threads = wide_threads(dim)};
}
NormGradPlan wide_norm_backward(NormKind kind, NormGradients wanted, DType dtype, int64_t rows, int64_t dim) {
  NormGradPlan plan;
  const bool input = wanted == NormGradients::kInput;
  plan.gradients = {.module = "norm_wide",
                    .kernel = wide_norm(kind, input ? "backward_input" : "backward_weight", dtype)};
  const uint32_t threads = wide_threads(dim), blocks = blocks_of(dim, threads);
  plan.gradients.threads = threads;
  // Enough threads to fill any device, but few parts compared with rows: each is written and read once more.
  plan.blocks = input ? rows : std::min<int64_t>(rows, std::max(16u, 65536 / (threads * blocks)));
  plan.gradients.grid_x = input ? static_cast<uint32_t>(rows) : blocks;
  if (input) return plan;
  plan.gradients.grid_y = static_cast<uint32_t>(plan.blocks);
  plan.sum = column_parts(dim);
  return plan;
}

namespace {

KernelLaunch split_loss(const std::string& kernel, int64_t rows, int64_t parts, int64_t columns) {
  return {.module = "split_loss",
          .kernel = kernel,
          .grid_x = static_cast<uint32_t>(rows),
          .grid_y = static_cast<uint32_t>(parts),
          .threads = std::clamp(blocks_of(columns, 32) * 32, 32u, 512u)};
}

}  // namespace

KernelLaunch split_loss_statistics(int64_t rows, int64_t parts, int64_t columns) {
  return split_loss("split_loss_statistics", rows, parts, columns);
}
KernelLaunch split_loss_gradient(DType gradient, int64_t rows, int64_t parts, int64_t columns) {
  return split_loss("split_loss_gradient" + suffix_of(gradient), rows, parts, columns);
}
KernelLaunch loss_of_statistics(int64_t tokens) {
  return over_elements("split_loss", "loss_of_statistics", tokens, 128);
}
KernelLaunch loss_of_statistics_gradient(int64_t tokens) {
  return over_elements("split_loss", "loss_of_statistics_gradient", tokens, 128);
}
KernelLaunch targets_ahead(int64_t rows) {
  return over_elements("split_loss", "targets_ahead", rows, 128);
}
KernelLaunch loss_seed() {
  return {.module = "split_loss", .kernel = "loss_seed"};
}

KernelLaunch take_share(int64_t unit, int64_t units) {
  return over_elements("shard", "take_share_" + std::to_string(unit), units, 256);
}
KernelLaunch vocab_start(int64_t parts) {
  return over_elements("shard", "vocab_start", parts, 256);
}

}  // namespace strata::gpu
