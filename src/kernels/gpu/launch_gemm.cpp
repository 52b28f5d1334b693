#include <algorithm>

#include "kernels/gpu/launch_names.h"

namespace strata::gpu {
namespace {

constexpr int64_t kDepth = 64;  // per stage of the bf16 kernels
constexpr int64_t kTileM = 128;
constexpr uint32_t kPlainShared = 3 * (128 + 128) * 128;  // bytes of three stages, tiles of 128 × 128

int64_t tiles(int64_t m, int64_t n, int64_t tile_m, int64_t tile_n) {
  return (m + tile_m - 1) / tile_m * ((n + tile_n - 1) / tile_n);
}

// The number of splits of the depth that minimizes the time of all waves of tiles, in units of a tile's depth
// step. `in_flight` tiles run concurrently.
int64_t choose_splits(const GemmShape& shape, int64_t tile_n, int64_t in_flight) {
  const int64_t steps = (shape.k + kDepth - 1) / kDepth;
  int64_t best = 1;
  double least = 0;
  for (int64_t splits = 1; splits <= 8 && (splits == 1 || steps / splits >= 8); splits *= 2) {
    const int64_t blocks = tiles(shape.m, shape.n, kTileM, tile_n) * splits,
                  waves = (blocks + in_flight - 1) / in_flight;
    // Filling the pipeline and writing the tile take about as long as six steps.
    const int64_t tile_steps = (steps + splits - 1) / splits + 6;
    double time = static_cast<double>(waves) * static_cast<double>(tile_steps);
    // Partial results are written and read once more.
    if (splits > 1)
      time += static_cast<double>(shape.m * shape.n * (splits + 1)) /
                  static_cast<double>(64 * tile_n * in_flight) +
              8;
    if (least == 0 || time < least) least = time, best = splits;
  }
  return best;
}

}  // namespace

GemmPlan plan_gemm(const GemmShape& shape, const GpuTraits& gpu) {
  GemmPlan plan;
  const std::string layout = name_of_layout(shape.layout),
                    out = shape.out_dtype == DType::kBF16 ? "bf16" : "f32";
  KernelLaunch& product = plan.product;
  if (shape.dtype == DType::kF32) {
    plan.split_depth = static_cast<int32_t>(shape.k);
    product = {.module = "gemm_f32",
               .kernel = "gemm_f32_" + layout,
               .grid_x = static_cast<uint32_t>(tiles(shape.m, shape.n, 128, 128)),
               .threads = 256};
    return plan;
  }
  const bool aligned = shape.a_stride % 8 == 0 && shape.b_stride % 8 == 0;
  plan.maps = aligned && gpu.wgmma;
  const int64_t tile_n = plan.maps ? 256 : 128, in_flight = gpu.multiprocessors * (plan.maps ? 1 : 2);
  const int64_t wanted = aligned ? choose_splits(shape, tile_n, in_flight) : 1;
  const int64_t depth = ((shape.k + kDepth - 1) / kDepth + wanted - 1) / wanted * kDepth;
  plan.split_depth = static_cast<int32_t>(std::max(depth, kDepth));
  plan.splits =
      static_cast<int32_t>(std::max<int64_t>(1, (shape.k + plan.split_depth - 1) / plan.split_depth));
  const std::string to = plan.splits > 1 ? "f32" : out;
  if (plan.maps) {
    const bool nt = shape.layout == GemmLayout::kNT, tn = shape.layout == GemmLayout::kTN;
    plan.a_map = {.rows = tn ? shape.k : shape.m,
                  .columns = tn ? shape.m : shape.k,
                  .stride = shape.a_stride,
                  .box_rows = tn ? 64 : 128};
    plan.b_map = {.rows = nt ? shape.n : shape.k,
                  .columns = nt ? shape.k : shape.n,
                  .stride = shape.b_stride,
                  .box_rows = nt ? 128 : 64};
    // Clusters of two persistent blocks.
    const int64_t pairs = tiles(shape.m, shape.n, 2 * kTileM, tile_n) * plan.splits;
    product = {
        .module = "gemm_wgmma",
        .kernel = "gemm_wgmma_" + layout + "_" + to,
        .grid_x = static_cast<uint32_t>(2 * std::min<int64_t>(pairs, std::max(1, gpu.multiprocessors / 2))),
        .threads = 384,
        .shared_bytes = 4 * (kTileM + 256) * 128 + 64};
  } else {
    product = {.module = "gemm_" + layout,
               .kernel = "gemm_" + layout + (aligned ? "_" : "_any_") + to,
               .grid_x = static_cast<uint32_t>(tiles(shape.m, shape.n, kTileM, tile_n)),
               .grid_y = static_cast<uint32_t>(plan.splits),
               .threads = 128,
               .shared_bytes = kPlainShared};
  }
  if (plan.splits > 1) {
    plan.parts_bytes = shape.m * shape.n * plan.splits * 4;
    plan.sum = {.module = "gemm_sum",
                .kernel = "gemm_sum_" + out,
                .grid_x = static_cast<uint32_t>((shape.n + 1023) / 1024),
                .grid_y = static_cast<uint32_t>(std::min<int64_t>(shape.m, 65535)),
                .threads = 256};
  }
  return plan;
}

ExpertsPlan plan_experts(int64_t slots, int64_t experts) {
  ExpertsPlan plan;
  plan.chunks = static_cast<int32_t>(blocks_of(slots, 1024));
  // The last tile of every expert may be partly filled, and so may the last tile of pairs without an expert.
  plan.tile_count = static_cast<int32_t>(slots / kTileM + experts + 1);
  for (const char* kernel : {"experts_count", "experts_place", "experts_slots"}) {
    const bool one = kernel == std::string("experts_place");
    plan.sort.push_back({.module = "experts_sort",
                         .kernel = kernel,
                         .grid_x = one ? 1 : static_cast<uint32_t>(plan.chunks),
                         .threads = 1024});
  }
  return plan;
}
KernelLaunch experts_rows(GemmLayout layout, DType out, const ExpertsPlan& plan, int64_t n) {
  return {
      .module = "experts",
      .kernel = std::string("experts_") + name_of_layout(layout) + (out == DType::kBF16 ? "_bf16" : "_f32"),
      .grid_x = static_cast<uint32_t>(plan.tile_count) * blocks_of(n, 128),
      .threads = 128,
      .shared_bytes = kPlainShared};
}
KernelLaunch experts_weights(int64_t experts, int64_t m, int64_t n) {
  return {.module = "experts",
          .kernel = "experts_tn_f32",
          .grid_x = static_cast<uint32_t>(tiles(m, n, kTileM, 128) * experts),
          .threads = 128,
          .shared_bytes = kPlainShared};
}
KernelLaunch experts_sum(DType out, int64_t tokens, int64_t columns) {
  const bool bf16 = out == DType::kBF16;
  const int64_t count = columns % 8 == 0 ? bf16 ? 8 : 4 : 1;
  return {.module = "experts_sort",
          .kernel = std::string("experts_sum_") + (count == 1 ? "any_" : "") + (bf16 ? "bf16" : "f32"),
          .grid_x = static_cast<uint32_t>(tokens),  // y has at most 65,535 blocks
          .grid_y = blocks_of(columns, 256 * count),
          .threads = 256};
}

}  // namespace strata::gpu
