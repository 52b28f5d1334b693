// How GPU kernels are launched: kernel, blocks, threads, shared memory. Plain C++ that is built everywhere,
// for callers of kernels and for cost models. Everything follows from shapes, and with it the order of every
// sum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gpu/args.h"
#include "tensor/dtype.h"

namespace strata::gpu {

// A launch without blocks has no work: callers skip it, since drivers refuse it.
struct KernelLaunch {
  std::string module;  // name of the source file without extension
  std::string kernel;
  uint32_t grid_x = 1, grid_y = 1, grid_z = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // dynamic
};

// Number of blocks of `size` that cover n.
constexpr uint32_t blocks_of(int64_t n, int64_t size) {
  return static_cast<uint32_t>((n + size - 1) / size);
}

// --- GEMM. Layouts as in GemmArgs.
enum class GemmLayout : uint8_t { kNT, kNN, kTN };
// A bf16 matrix for TMA copies of box_rows rows of 64 elements: the input of cuTensorMapEncodeTiled, with
// elements permuted within 128 bytes and zeros outside the matrix. Strides are multiples of 8.
struct MatrixMap {
  int64_t rows = 0, columns = 0, stride = 0;
  int32_t box_rows = 0;
};
struct GemmPlan {
  KernelLaunch product;
  bool maps = false;  // takes GemmMapsArgs, with these maps of a and b
  MatrixMap a_map, b_map;
  KernelLaunch sum;  // adds the splits; no kernel if there is only one
  int32_t splits = 1, split_depth = 0;
  int64_t parts_bytes = 0;  // of all splits, if there are several
};
struct GemmShape {
  GemmLayout layout = GemmLayout::kNT;
  DType dtype = DType::kBF16;      // of a and b
  DType out_dtype = DType::kBF16;  // of c
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};
struct GpuTraits {
  int multiprocessors = 1;
  bool wgmma = false;  // sm_90a
};
GemmPlan plan_gemm(const GemmShape& shape, const GpuTraits& gpu);

// --- Experts in bf16. Strides are multiples of 8; launch_experts.h has the kernels for others.
struct ExpertsPlan {
  std::vector<KernelLaunch> sort;  // consecutive; run once for all GEMMs of the same ids
  int32_t chunks = 0, tile_count = 0;
};
ExpertsPlan plan_experts(int64_t slots, int64_t experts);
// n: columns of c. Layouts nt and nn.
KernelLaunch experts_rows(GemmLayout layout, DType out, const ExpertsPlan& plan, int64_t n);
// The weight gradient; m and n of one expert.
KernelLaunch experts_weights(int64_t experts, int64_t m, int64_t n);
KernelLaunch experts_sum(DType out, int64_t tokens, int64_t columns);

// --- Attention. bf16: head_dim, value_dim and all strides are multiples of 8.
struct AttentionShape {
  DType dtype = DType::kBF16;
  int64_t batch = 1, length = 0, kv_length = 0;
  int64_t heads = 1, kv_heads = 1, head_dim = 0, value_dim = 0;
  bool softcap = false;
};
KernelLaunch attention_ranges(const AttentionShape& shape);
KernelLaunch attention_forward(const AttentionShape& shape);
KernelLaunch store_cache_rows(DType dtype, int64_t rows, const CacheRowsArgs& args);
KernelLaunch attention_delta(const AttentionShape& shape);
// Consecutive launches with the same arguments.
std::vector<KernelLaunch> attention_backward(const AttentionShape& shape);
// Attention with wgmma, for devices that support it and some shapes: kernels take AttentionMapsArgs, except
// delta, which runs before the rest of backward and takes AttentionArgs. Strides are those of `args`.
struct AttentionMapsPlan {
  KernelLaunch forward, delta;
  std::vector<KernelLaunch> backward;
  MatrixMap q_map, k_map, v_map, dout_map;
};
std::optional<AttentionMapsPlan> plan_attention_maps(const AttentionShape& shape, const AttentionArgs& args);
// After attention_delta, the first of attention_backward.
KernelLaunch sink_gradient(const AttentionShape& shape);

// --- Norms
enum class NormKind : uint8_t { kRms, kLayer };
KernelLaunch norm_forward(NormKind kind, DType dtype, int64_t rows, int64_t dim);
enum class NormGradients : uint8_t { kInput, kWeight };
struct NormGradPlan {
  KernelLaunch gradients;
  int64_t blocks = 0;  // rows of parts, with dim elements (layer norm: 2 · dim)
  KernelLaunch sum;    // adds the parts, once for dw and once for db; no kernel for kInput
};
NormGradPlan norm_backward(NormKind kind, NormGradients wanted, DType dtype, int64_t rows, int64_t dim);

// QkNormArgs::parts has `parts` rows of q_width + k_width, which `q_sum` and `k_sum` add.
struct QkNormWeightPlan {
  KernelLaunch gradients;
  int32_t at_once = 1;
  int64_t parts = 0;
  KernelLaunch q_sum, k_sum;
};
KernelLaunch qk_norm_forward(DType dtype, const QkNormArgs& args);
KernelLaunch qk_norm_backward_input(DType dtype, const QkNormArgs& args);
QkNormWeightPlan qk_norm_backward_weight(DType dtype, const QkNormArgs& args);

// --- Rows and elements
KernelLaunch column_parts(int64_t columns);
struct ColumnSumsPlan {
  KernelLaunch sums;
  int64_t parts = 0;
  KernelLaunch sum;
};
ColumnSumsPlan column_sums(DType dtype, int64_t rows, int64_t columns, int64_t stride);
// "add", "add_row", "take_row"; with a factor "scale", "fill", "clamp", "clamp_gradient", "softcap" (fp32), for a
// dtype; "cast_bf16_f32" (to bf16) and "cast_f32_bf16".
KernelLaunch elementwise(const std::string& name, DType dtype, int64_t n);
KernelLaunch transpose(DType dtype, int64_t rows, int64_t columns);
KernelLaunch activation(bool gated, DType dtype, int64_t rows, int64_t width);
KernelLaunch rope(DType dtype, const RopeArgs& args);
KernelLaunch rope_table(int64_t positions, int64_t pairs);

// --- Embedding
KernelLaunch embedding(DType dtype, int64_t rows, int64_t dim);
struct EmbeddingGradPlan {
  KernelLaunch sort;
  KernelLaunch add;  // once per run, in order, into a table that accumulates the sums
  int64_t run = 32, runs = 0;
};
EmbeddingGradPlan embedding_backward(DType dtype, int64_t rows, int64_t dim);

// --- Loss
KernelLaunch cross_entropy(DType logits, DType gradient, int64_t tokens, int64_t vocab, int64_t stride);
KernelLaunch loss_sum();

// --- Optimizer
constexpr int64_t kNormBlock = 65536;  // elements per partial sum, as on the CPU
// "adamw", "lion", "adopt": take ElementUpdateArgs.
KernelLaunch element_update(const std::string& name, int64_t n);
KernelLaunch adamw8bit_update(int64_t n);
// "momentum", "scale", "polynomial", "apply", of n elements.
KernelLaunch muon(const std::string& part, int64_t n);
// In this order, with sums of adafactor_partials by sum_of_squares and reduce_sum between them (AdafactorArgs).
struct AdafactorPlan {
  KernelLaunch row, rows;  // no kernels for a vector
  KernelLaunch column_parts, columns;
  KernelLaunch updates;
  KernelLaunch apply;
  int64_t part_count = 1;
};
AdafactorPlan adafactor(int64_t rows, int64_t columns);
KernelLaunch row_squares(int64_t rows);
KernelLaunch clip_rows(int64_t rows);
KernelLaunch sum_of_squares(int64_t n);
KernelLaunch reduce_sum();

// --- Statistics and digests of tensors
struct StatisticsPlan {
  KernelLaunch parts;
  KernelLaunch sum;  // after `parts`, with the same arguments
  int64_t parts_bytes = 0;
};
StatisticsPlan statistics(DType dtype, int64_t rows, int64_t columns);
// m ≤ 4096
KernelLaunch take_sample(int64_t m);
KernelLaunch sample_change(int64_t m);
KernelLaunch squares_and_digests(int64_t n);
// More than kMostLists lists take several launches; all but the first accumulate. sum_partials as well.
KernelLaunch join_digests();

// --- Scalars of a step
KernelLaunch sum_partials();
KernelLaunch root_of_sum();
constexpr int64_t kStepScalarsWorkspace = 2 * 512 * 8;  // bytes: two windows of optim/guard.h
KernelLaunch step_scalars();

}  // namespace strata::gpu
