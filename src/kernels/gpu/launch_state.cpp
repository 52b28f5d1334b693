#include <algorithm>

#include "kernels/gpu/launch.h"

namespace strata::gpu {
namespace {

constexpr int64_t kNumbers = 9;  // of a table of statistics

}  // namespace

KernelLaunch element_update(const std::string& name, int64_t n) {
  KernelLaunch launch{.module = name == "adamw" ? "optimizer" : "optimizers", .kernel = name + "_update"};
  launch.grid_x = std::min(blocks_of(n, 256 * 4), 1u << 16);
  launch.threads = 256;
  return launch;
}
KernelLaunch adamw8bit_update(int64_t n) {
  return {.module = "optimizers", .kernel = "adamw8bit_update", .grid_x = blocks_of(n, 256), .threads = 256};
}
KernelLaunch muon(const std::string& part, int64_t n) {
  KernelLaunch launch = element_update("muon", n);
  launch.kernel = "muon_" + part;
  return launch;
}
AdafactorPlan adafactor(int64_t rows, int64_t columns) {
  const auto kernel = [](const char* name, int64_t x, int64_t y = 1) {
    return KernelLaunch{.module = "optimizers",
                        .kernel = name,
                        .grid_x = static_cast<uint32_t>(x),
                        .grid_y = static_cast<uint32_t>(y),
                        .threads = 256};
  };
  AdafactorPlan plan;
  plan.part_count = std::clamp<int64_t>(rows / 64, 1, 128);
  plan.row = kernel("adafactor_row", rows);
  plan.rows = kernel("adafactor_rows", 1);
  plan.column_parts = kernel("adafactor_column_parts", blocks_of(columns, 256), plan.part_count);
  plan.columns = kernel("adafactor_columns", blocks_of(columns, 256));
  plan.updates = kernel("adafactor_updates", rows);
  plan.apply = kernel("adafactor_apply", rows, std::clamp<int64_t>(columns / 4096, 1, 64));
  return plan;
}
KernelLaunch row_squares(int64_t rows) {
  return {
      .module = "optimizers", .kernel = "row_squares", .grid_x = static_cast<uint32_t>(rows), .threads = 256};
}
KernelLaunch clip_rows(int64_t rows) {
  return {
      .module = "optimizers", .kernel = "clip_rows", .grid_x = static_cast<uint32_t>(rows), .threads = 256};
}
KernelLaunch sum_of_squares(int64_t n) {
  return {
      .module = "optimizer", .kernel = "sum_of_squares", .grid_x = blocks_of(n, kNormBlock), .threads = 256};
}
KernelLaunch reduce_sum() {
  return {.module = "optimizer", .kernel = "reduce_sum", .threads = 256};
}

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
