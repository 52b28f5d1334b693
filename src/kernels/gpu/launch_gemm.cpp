#include <algorithm>

#include "kernels/gpu/launch.h"

namespace strata::gpu {
namespace {

constexpr int64_t kDepth = 64;  // of a stage of the bf16 kernels
constexpr uint32_t kStages = 3;

int64_t tiles(int64_t m, int64_t n, int64_t tile_m, int64_t tile_n) {
  return (m + tile_m - 1) / tile_m * ((n + tile_n - 1) / tile_n);
}

struct Choice {
  bool large = false;
  int64_t splits = 1;
};

// The least time of waves of tiles, in units of a small tile's step of the depth.
Choice choose(const GemmShape& shape, int multiprocessors) {
  const int64_t steps = (shape.k + kDepth - 1) / kDepth;
  Choice best;
  double least = 0;
  for (const bool large : {true, false}) {
    // Two small tiles share a multiprocessor; they read more from the second-level cache.
    const double tile = large ? 2.0 : 1.15;
    const int64_t slots = multiprocessors * (large ? 1 : 2);
    for (int64_t splits = 1; splits <= 8 && (splits == 1 || steps / splits >= 8); splits *= 2) {
      const int64_t blocks = tiles(shape.m, shape.n, 128, large ? 256 : 128) * splits;
      const int64_t waves = (blocks + slots - 1) / slots;
      // Filling the pipeline and writing the tile take about as long as six steps.
      double time = static_cast<double>(waves) * tile * (large ? 1 : 2) * static_cast<double>((steps + splits - 1) / splits + 6);
      if (!large && blocks <= multiprocessors) time /= 2;
      // Parts are written and read once more.
      if (splits > 1) time += static_cast<double>(shape.m * shape.n * (splits + 1)) / 16384 / multiprocessors * 4 + 8;
      if (least == 0 || time < least) least = time, best = {large, splits};
    }
  }
  return best;
}

const char* name_of_layout(GemmLayout layout) {
  return layout == GemmLayout::kNT ? "nt" : layout == GemmLayout::kNN ? "nn" : "tn";
}

}  // namespace

GemmPlan plan_gemm(const GemmShape& shape, int multiprocessors) {
  GemmPlan plan;
  const std::string layout = name_of_layout(shape.layout), out = shape.out_dtype == DType::kBF16 ? "bf16" : "f32";
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
  const Choice choice = aligned ? choose(shape, multiprocessors) : Choice{};
  const int64_t depth = ((shape.k + kDepth - 1) / kDepth + choice.splits - 1) / choice.splits * kDepth;
  plan.split_depth = static_cast<int32_t>(std::max(depth, kDepth));
  plan.splits = static_cast<int32_t>(std::max<int64_t>(1, (shape.k + plan.split_depth - 1) / plan.split_depth));
  const uint32_t tile_n = choice.large ? 256 : 128;
  product.module = "gemm_" + layout;
  product.kernel = "gemm_" + layout + (!aligned ? "_any_" : choice.large ? "_large_" : "_small_") + (plan.splits > 1 ? "f32" : out);
  product.grid_x = static_cast<uint32_t>(tiles(shape.m, shape.n, 128, tile_n));
  product.grid_y = static_cast<uint32_t>(plan.splits);
  product.threads = choice.large ? 256 : 128;
  product.shared_bytes = kStages * (128 + tile_n) * static_cast<uint32_t>(kDepth) * 2;
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

}  // namespace strata::gpu
