#include <algorithm>

#include "kernels/gpu/launch.h"

namespace strata::gpu {
namespace {

constexpr int64_t kNumbers = 9;  // of a table of statistics

}  // namespace

KernelLaunch rope_table(int64_t positions, int64_t pairs) {
  return {
      .module = "rope", .kernel = "rope_table", .grid_x = blocks_of(positions * pairs, 256), .threads = 256};
}

StatisticsPlan statistics(DType dtype, int64_t rows, int64_t columns) {
  StatisticsPlan plan;
  plan.parts = {.module = "statistics",
                .kernel = dtype == DType::kBF16 ? "statistics_parts_bf16" : "statistics_parts_f32"};
  // Without elements a block is needed too: it measures none.
  plan.parts.grid_x = static_cast<uint32_t>(
      std::clamp<int64_t>(blocks_of(rows * columns, kStatisticsBlock), 1, kMostStatisticsParts));
  plan.parts.threads = 256;
  plan.sum = {.module = "statistics", .kernel = "statistics_sum", .threads = kNumbers * 32};
  plan.parts_bytes = static_cast<int64_t>(plan.parts.grid_x) * kNumbers * 8;
  return plan;
}

KernelLaunch take_sample(int64_t m) {
  return {.module = "statistics",
          .kernel = "take_sample",
          .grid_x = std::max(blocks_of(m, 256), 1u),
          .threads = 256};
}
KernelLaunch sample_change(int64_t /*m*/) {
  return {.module = "statistics", .kernel = "sample_change", .threads = 1024};
}

KernelLaunch squares_and_digests(int64_t n) {
  return {.module = "statistics",
          .kernel = "squares_and_digests",
          .grid_x = blocks_of(n, kNormBlock),
          .threads = 256};
}
KernelLaunch join_digests() {
  return {.module = "statistics", .kernel = "join_digests", .threads = 1024};
}

KernelLaunch sum_partials() {
  return {.module = "scalars", .kernel = "sum_partials", .threads = 1024};
}
KernelLaunch root_of_sum() {
  return {.module = "scalars", .kernel = "root_of_sum"};
}
KernelLaunch step_scalars() {
  return {.module = "scalars", .kernel = "step_scalars", .threads = 256};
}

}  // namespace strata::gpu
