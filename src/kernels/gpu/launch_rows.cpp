#include <algorithm>

#include "kernels/gpu/launch_names.h"
#include "kernels/gpu/launch_plain.h"

namespace strata::gpu {
namespace {

constexpr uint32_t kThreads = 256;

// Elements per access of a thread, in rows of `width`.
int64_t count_of(DType dtype, int64_t width) {
  const int64_t count = 16 / size_of(dtype);
  return width % count == 0 ? count : 1;
}
std::string ending_of(DType dtype, int64_t width) {
  return type_of(dtype) + (count_of(dtype, width) == 1 ? "_any" : "");
}
uint32_t row_threads(int64_t dim) {
  return std::clamp(blocks_of(dim, 32) + 31, 32u, 512u) / 32 * 32;
}
// Whether the kernels of norm.cu take rows: up to 32 elements a thread, in whole vectors.
bool is_held(DType dtype, int64_t dim) {
  return dim <= 16384 && count_of(dtype, dim) > 1;
}

}  // namespace

KernelLaunch norm_forward(NormKind kind, DType dtype, int64_t rows, int64_t dim) {
  if (!is_held(dtype, dim)) return wide_norm_forward(kind, dtype, rows, dim);
  KernelLaunch launch{
      .module = "norm",
      .kernel = (kind == NormKind::kRms ? "rms" : "layer") + ("_norm_forward" + type_of(dtype))};
  launch.grid_x = static_cast<uint32_t>(rows);
  launch.threads = row_threads(dim);
  return launch;
}

NormGradPlan norm_backward(NormKind kind, NormGradients wanted, DType dtype, int64_t rows, int64_t dim) {
  if (!is_held(dtype, dim)) return wide_norm_backward(kind, wanted, dtype, rows, dim);
  const bool input = wanted == NormGradients::kInput;
  NormGradPlan plan;
  plan.gradients = {.module = "norm",
                    .kernel = std::string(kind == NormKind::kRms ? "rms" : "layer") + "_norm_backward_" +
                              (input ? "input" : "weight") + type_of(dtype)};
  plan.gradients.threads = row_threads(dim);
  // Enough threads to fill any device, but few blocks compared with rows: the sums of each block are written
  // and read once more.
  plan.blocks = input ? rows : std::min<int64_t>(rows, 65536 / plan.gradients.threads);
  plan.gradients.grid_x = static_cast<uint32_t>(plan.blocks);
  if (!input) plan.sum = column_parts(dim);
  return plan;
}

namespace {

KernelLaunch qk_norm(const std::string& part, DType dtype, const QkNormArgs& args) {
  const int64_t count =
      std::min({count_of(dtype, args.width), count_of(dtype, args.q_width), count_of(dtype, args.k_width)});
  KernelLaunch launch{.module = "qk_norm",
                      .kernel = "qk_norm_" + part + type_of(dtype) + (count == 1 ? "_any" : "")};
  launch.grid_x = static_cast<uint32_t>(args.rows);
  launch.threads = kThreads;
  return launch;
}

}  // namespace

KernelLaunch qk_norm_forward(DType dtype, const QkNormArgs& args) {
  return qk_norm("forward", dtype, args);
}
KernelLaunch qk_norm_backward_input(DType dtype, const QkNormArgs& args) {
  return qk_norm("backward_input", dtype, args);
}
QkNormWeightPlan qk_norm_backward_weight(DType dtype, const QkNormArgs& args) {
  QkNormWeightPlan plan;
  plan.gradients = qk_norm("backward_weight", dtype, args);
  const int64_t count = plan.gradients.kernel.ends_with("_any") ? 1 : 16 / size_of(dtype);
  const int64_t vectors = (args.q_width + args.k_width) / count;
  plan.at_once = static_cast<int32_t>(std::clamp<int64_t>(kThreads / vectors, 1, 8));
  plan.gradients.grid_x = static_cast<uint32_t>(std::min<int64_t>(blocks_of(args.rows, plan.at_once), 512));
  plan.parts = static_cast<int64_t>(plan.gradients.grid_x) * plan.at_once;
  plan.q_sum = column_parts(args.q_width);
  plan.k_sum = column_parts(args.k_width);
  return plan;
}

KernelLaunch column_parts(int64_t columns) {
  KernelLaunch launch{.module = "elementwise", .kernel = "column_parts"};
  launch.grid_x = blocks_of(columns, 32);
  launch.threads = 1024;
  return launch;
}

ColumnSumsPlan column_sums(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  ColumnSumsPlan plan;
  const int64_t count = std::min(count_of(dtype, columns), count_of(dtype, stride));
  plan.sums = {.module = "elementwise",
               .kernel = "column_sums" + std::string(count == 1 ? "_any" : "") + type_of(dtype)};
  plan.parts = std::clamp<int64_t>(rows / 64, 1, 128);
  plan.sums.grid_x = blocks_of(columns, 32 * count);
  plan.sums.grid_y = static_cast<uint32_t>(plan.parts);
  plan.sums.threads = kThreads;
  plan.sum = column_parts(columns);
  return plan;
}

KernelLaunch elementwise(const std::string& name, DType dtype, int64_t n) {
  KernelLaunch launch{.module = "elementwise", .kernel = name};
  if (name.rfind("cast", 0) != 0) launch.kernel += type_of(dtype);
  launch.grid_x = blocks_of(n, kThreads * (name.rfind("cast", 0) == 0 ? 8 : 16 / size_of(dtype)));
  launch.threads = kThreads;
  return launch;
}

KernelLaunch transpose(DType dtype, int64_t rows, int64_t columns) {
  KernelLaunch launch{.module = "elementwise", .kernel = "transpose" + type_of(dtype)};
  launch.grid_x = blocks_of(columns, 64);
  launch.grid_y = blocks_of(rows, 64);
  launch.threads = kThreads;
  return launch;
}

KernelLaunch activation(bool gated, DType dtype, int64_t rows, int64_t width) {
  KernelLaunch launch{.module = "activation",
                      .kernel = (gated ? "gated" : "activation") + ending_of(dtype, width)};
  launch.grid_x = blocks_of(rows * width, kThreads * count_of(dtype, width));
  launch.threads = kThreads;
  return launch;
}

KernelLaunch rope(DType dtype, const RopeArgs& args) {
  int64_t count = 16 / size_of(dtype);
  for (const int64_t size : {int64_t{args.rotary_dim} / 2, int64_t{args.head_dim}, int64_t{args.first},
                             int64_t{args.width}, args.row_stride}) {
    if (size % count != 0) count = 1;
  }
  KernelLaunch launch{.module = "rope", .kernel = "rope" + type_of(dtype) + (count == 1 ? "_any" : "")};
  const int64_t copied = args.in == args.out ? 0 : args.width / count;
  launch.grid_x = static_cast<uint32_t>(args.rows);  // y has at most 65,535 blocks
  launch.grid_y = blocks_of(args.heads * (args.rotary_dim / 2 / count) + copied, kThreads);
  launch.threads = kThreads;
  return launch;
}

KernelLaunch embedding(DType dtype, int64_t rows, int64_t dim) {
  KernelLaunch launch{.module = "embedding", .kernel = "embedding" + ending_of(dtype, dim)};
  launch.threads = 128;
  launch.grid_x = static_cast<uint32_t>(rows);
  launch.grid_y = blocks_of(dim, launch.threads * count_of(dtype, dim));
  return launch;
}

EmbeddingGradPlan embedding_backward(DType dtype, int64_t rows, int64_t dim) {
  EmbeddingGradPlan plan;
  while (plan.run < 8192 && plan.run < rows) plan.run *= 2;
  plan.runs = (rows + plan.run - 1) / plan.run;
  plan.sort = {.module = "embedding", .kernel = "embedding_sort"};
  plan.sort.grid_x = static_cast<uint32_t>(plan.runs);
  plan.sort.threads = static_cast<uint32_t>(std::clamp<int64_t>(plan.run / 2, 32, 1024));
  plan.sort.shared_bytes = static_cast<uint32_t>(plan.run * 8);
  plan.add = {.module = "embedding", .kernel = "embedding_backward" + ending_of(dtype, dim)};
  plan.add.threads = 128;
  plan.add.grid_x = static_cast<uint32_t>(plan.run);
  plan.add.grid_y = blocks_of(dim, plan.add.threads * count_of(dtype, dim));
  return plan;
}

KernelLaunch cross_entropy(DType logits, DType gradient, int64_t tokens, int64_t vocab, int64_t stride) {
  const int64_t count = std::min(count_of(gradient, vocab), count_of(gradient, stride));
  KernelLaunch launch{
      .module = "loss",
      .kernel = "cross_entropy" + type_of(logits) + type_of(gradient) + (count == 1 ? "_any" : "")};
  launch.grid_x = static_cast<uint32_t>(tokens);
  launch.threads = vocab > 8192 ? 512 : 256;
  return launch;
}
KernelLaunch loss_sum() {
  return {.module = "loss", .kernel = "loss_sum", .threads = 1024};
}

}  // namespace strata::gpu
