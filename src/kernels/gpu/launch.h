// How the GPU's kernels are launched: which one, on how many blocks and threads, with how much shared memory. Plain C++ that is built
// everywhere; what calls kernels and what prices them asks here. All of it follows from shapes, so that the order of every sum does too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gpu/args.h"
#include "tensor/dtype.h"

namespace strata::gpu {

struct KernelLaunch {
  std::string module;  // the source file without its ending
  std::string kernel;
  uint32_t grid_x = 1, grid_y = 1, grid_z = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // dynamic
};

// --- GEMM. Layouts as GemmArgs has them.
enum class GemmLayout : uint8_t { kNT, kNN, kTN };
struct GemmPlan {
  KernelLaunch product;
  KernelLaunch sum;  // of the parts; no kernel: there is one part
  int32_t splits = 1, split_depth = 0;
  int64_t parts_bytes = 0;  // of the parts: the product's c, where there are several
};
struct GemmShape {
  GemmLayout layout = GemmLayout::kNT;
  DType dtype = DType::kBF16;      // of a and b
  DType out_dtype = DType::kBF16;  // of c
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};
// `multiprocessors`: of the device, which choose the tile and the number of parts.
GemmPlan plan_gemm(const GemmShape& shape, int multiprocessors);

// --- Attention. bf16: head_dim, value_dim and all strides are multiples of 8.
struct AttentionShape {
  DType dtype = DType::kBF16;
  int64_t batch = 1, length = 0, kv_length = 0;
  int64_t heads = 1, kv_heads = 1, head_dim = 0, value_dim = 0;
  bool softcap = false;
};
KernelLaunch attention_ranges(const AttentionShape& shape);
KernelLaunch attention_forward(const AttentionShape& shape);
// One after another, with the same arguments.
std::vector<KernelLaunch> attention_backward(const AttentionShape& shape);

}  // namespace strata::gpu
