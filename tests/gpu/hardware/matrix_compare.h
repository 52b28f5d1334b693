// Compares mma on the executor and on a card, and finds the model of addition that the card follows.
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
// How operands are drawn: "uniform", "exponents 12", "cancelling", …
std::vector<std::string> matrix_spreads();

// Matrices one after another, by rows: a 16 · depth, b depth · 8, c 16 · 8; tf32 in the upper bits of fp32.
struct MatrixBatch {
  std::vector<uint32_t> a, b, c;
  size_t count = 0;
};
MatrixBatch draw_matrices(const MatrixShape& shape, size_t spread, size_t count);
// d, 16 · 8 for each.
std::vector<uint32_t> multiply_matrices(GpuDevice& device, const MatrixShape& shape,
                                        const MatrixBatch& batch);

// Lines for mma.csv: what differs, and the models by the share of results that they give.
std::string matrix_report(const MatrixShape& shape, size_t spread, const MatrixBatch& batch,
                          const std::vector<uint32_t>& executor, const std::vector<uint32_t>& card);
std::string matrix_report_header();

}  // namespace strata::gpu_tests
