#include "kernels/gpu/launch_experts.h"

#include "kernels/gpu/launch_names.h"

namespace strata::gpu {
namespace {

constexpr uint32_t kExpertThreads = 256;
constexpr int64_t kWarpsOfBlock = 4;

KernelLaunch a_thread_each(const std::string& module, const std::string& kernel, int64_t n) {
  return {
      .module = module, .kernel = kernel, .grid_x = blocks_of(n, kExpertThreads), .threads = kExpertThreads};
}
KernelLaunch a_warp_each(const std::string& module, const std::string& kernel, int64_t n) {
  return {.module = module,
          .kernel = kernel,
          .grid_x = blocks_of(n, kWarpsOfBlock),
          .threads = 32 * static_cast<uint32_t>(kWarpsOfBlock)};
}
KernelLaunch a_block_each(const std::string& module, const std::string& kernel, int64_t n,
                          uint32_t threads = kExpertThreads) {
  return {.module = module, .kernel = kernel, .grid_x = static_cast<uint32_t>(n), .threads = threads};
}
// Tiles of 64 × 64 of [rows][columns] (plain_tile.cuh), once for each of `groups`.
KernelLaunch plain_tiles(const std::string& module, const std::string& kernel, int64_t rows, int64_t columns,
                         int64_t groups) {
  return {.module = module,
          .kernel = kernel,
          .grid_x = blocks_of(rows, 64) * blocks_of(columns, 64),
          .grid_y = static_cast<uint32_t>(groups),
          .threads = kExpertThreads};
}

}  // namespace

KernelLaunch expert_product(GemmLayout layout, DType in, DType out, const ExpertsPlan& plan, int64_t n) {
  return {.module = "expert_products",
          .kernel = std::string("expert_product_") + name_of_layout(layout) + type_of(in) + type_of(out),
          .grid_x = static_cast<uint32_t>(plan.tile_count) * blocks_of(n, 64),
          .grid_y = 2,  // halves of the lists' tiles
          .threads = kExpertThreads};
}
KernelLaunch expert_product_weights(DType in, int64_t experts, int64_t m, int64_t n) {
  return {.module = "expert_products",
          .kernel = "expert_product_tn" + type_of(in) + "_f32",
          .grid_x = blocks_of(m, 64) * blocks_of(n, 64) * static_cast<uint32_t>(experts),
          .threads = kExpertThreads};
}

KernelLaunch router(const std::string& part, int64_t tokens) {
  return a_warp_each("router", part, tokens);
}
KernelLaunch jitter(int64_t rows, int64_t columns) {
  return a_thread_each("router", "jitter", rows * ((columns + 3) / 4));
}
KernelLaunch sample_places(int64_t rows) {
  return a_thread_each("router", "sample_places", rows);
}

RouterSumsPlan router_sums(int64_t groups, int64_t rows, int64_t experts) {
  RouterSumsPlan plan;
  plan.part_count = blocks_of(rows, kRouterPart);
  plan.parts = a_block_each("router_loss", "router_sums_parts", groups * plan.part_count);
  plan.sum = a_thread_each("router_loss", "router_sums", groups * experts);
  plan.parts_bytes = groups * plan.part_count * 2 * experts * size_of(DType::kF32);
  return plan;
}
KernelLaunch router_sums_gradient(int64_t tokens) {
  return a_warp_each("router_loss", "router_sums_gradient", tokens);
}
KernelLaunch balance_loss() {
  return a_block_each("router_loss", "balance_loss", 1);
}
KernelLaunch balance_loss_gradient(int64_t groups) {
  return a_warp_each("router_loss", "balance_loss_gradient", groups);
}
RouterZPlan router_z_loss(int64_t tokens) {
  RouterZPlan plan;
  plan.part_count = blocks_of(tokens, kRouterPart);
  plan.parts = a_block_each("router_loss", "router_z_parts", plan.part_count);
  plan.sum = a_block_each("router_loss", "router_z_sum", 1, 32);
  return plan;
}
KernelLaunch router_z_gradient(int64_t tokens) {
  return a_warp_each("router_loss", "router_z_gradient", tokens);
}
KernelLaunch router_bias_update() {
  return a_block_each("router_loss", "router_bias_update", 1);
}

KernelLaunch expert_choice(int64_t groups, int64_t experts) {
  return a_warp_each("router_groups", "expert_choice", groups * experts);
}
KernelLaunch expert_choice_gradient(int64_t slots) {
  return a_thread_each("router_groups", "expert_choice_gradient", slots);
}
KernelLaunch group_rows(const std::string& part, DType dtype, int64_t rows) {
  return a_block_each("expert_rows", part + type_of(dtype), rows);
}

KernelLaunch soft_weights(bool of_tokens, const SoftArgs& args) {
  return of_tokens ? a_thread_each("soft_mix", "soft_weights_of_tokens", int64_t{args.groups} * args.slots)
                   : a_warp_each("soft_mix", "soft_weights_of_slots", int64_t{args.groups} * args.rows);
}
KernelLaunch soft_through(bool of_tokens, const SoftArgs& args) {
  return of_tokens ? a_thread_each("soft_mix", "soft_through_tokens", int64_t{args.groups} * args.slots)
                   : a_warp_each("soft_mix", "soft_through_slots", int64_t{args.groups} * args.rows);
}
KernelLaunch soft_mix(bool to_slots, DType dtype, const SoftArgs& args) {
  return plain_tiles("soft_mix",
                     std::string("soft_mix_to_") + (to_slots ? "inputs" : "tokens") + type_of(dtype),
                     to_slots ? args.slots : args.rows, args.columns, args.groups);
}
KernelLaunch soft_products(DType dtype, const SoftArgs& args) {
  return plain_tiles("soft_mix", "soft_products" + type_of(dtype), args.rows, args.slots, args.groups);
}
KernelLaunch soft_slots(const SoftArgs& args) {
  return a_thread_each("soft_mix", "soft_slots", int64_t{args.groups} * args.slots);
}

KernelLaunch scale_rows(DType dtype, int64_t rows, int64_t columns) {
  const bool vectors = columns % (16 / size_of(dtype)) == 0;
  return a_block_each("expert_rows", "scale_rows" + type_of(dtype) + (vectors ? "" : "_any"), rows, 128);
}
KernelLaunch expert_bias(DType dtype, int64_t rows) {
  return a_block_each("expert_rows", "expert_bias" + type_of(dtype), rows);
}
KernelLaunch expert_bias_gradient(DType dtype, int64_t experts, int64_t columns) {
  return a_block_each("expert_rows", "expert_bias_gradient" + type_of(dtype),
                      experts * blocks_of(columns, 32));
}
KernelLaunch expert_bias_weights_gradient(DType dtype, int64_t slots) {
  return a_warp_each("expert_rows", "expert_bias_weights_gradient" + type_of(dtype), slots);
}
KernelLaunch limit_experts(int64_t slots) {
  return a_thread_each("expert_rows", "limit_experts", slots);
}
KernelLaunch weights_of_kept(int64_t slots) {
  return a_thread_each("expert_rows", "weights_of_kept", slots);
}
KernelLaunch expert_counts(int64_t experts) {
  return a_block_each("expert_rows", "expert_counts", experts);
}
KernelLaunch running_counts(int64_t experts) {
  return a_thread_each("expert_rows", "running_counts", experts);
}

KernelLaunch clamped_gated(DType dtype, int64_t rows, int64_t width) {
  const int64_t count = width % (16 / size_of(dtype)) == 0 ? 16 / size_of(dtype) : 1;
  return a_thread_each("activation", "clamped_gated" + type_of(dtype) + (count == 1 ? "_any" : ""),
                       rows * width / count);
}
KernelLaunch temper(DType dtype, int64_t rows) {
  return a_block_each("expert_rows", "temper" + type_of(dtype), rows);
}
KernelLaunch chunk_begins(int64_t n) {
  return a_thread_each("expert_rows", "chunk_begins", n);
}
KernelLaunch take_part(bool gradient, int64_t n) {
  return a_thread_each("expert_rows", gradient ? "take_part_gradient" : "take_part", n);
}

}  // namespace strata::gpu
