// Multiplies matrices on a device with mma.
#pragma once

#include <string>
#include <vector>

#include "gpu_device.h"
#include "ptx/floating.h"

namespace strata::gpu_tests {

struct MatrixShape {
  std::string name;  // m16n8k16
  std::string type;  // bf16
  unsigned depth;
  Format format;
};
std::vector<MatrixShape> matrix_shapes();

inline constexpr size_t kMatrixResults = 16 * 8;

// Consecutive row-major matrices: a 16 · depth, b depth · 8, c 16 · 8; tf32 without the low bits of fp32,
// right-aligned. `count` is a multiple of four.
struct MatrixBatch {
  std::vector<uint32_t> a, b, c;
  size_t count = 0;
};
// Returns d, 16 · 8 for each.
std::vector<uint32_t> multiply_matrices(GpuDevice& device, const MatrixShape& shape,
                                        const MatrixBatch& batch);

}  // namespace strata::gpu_tests
