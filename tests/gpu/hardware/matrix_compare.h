// Compares mma on the executor and a GPU, and finds the model of addition that the GPU follows.
#pragma once

#include <string>
#include <vector>

#include "matrices.h"

namespace strata::gpu_tests {

// Distributions of operands: "uniform", "exponents 12", "cancelling", …
std::vector<std::string> matrix_spreads();

MatrixBatch draw_matrices(const MatrixShape& shape, size_t spread, size_t count);
// Lines for mma.csv: differences from the executor, also with MmaSum::kHopper, and the models ordered by
// their share of equal results.
std::string matrix_report(const MatrixShape& shape, size_t spread, const MatrixBatch& batch,
                          const std::vector<uint32_t>& executor, const std::vector<uint32_t>& hopper,
                          const std::vector<uint32_t>& card);
std::string matrix_report_header();
// A few lines "shape type a… b… c d" of bits in hexadecimal, mostly where the executor differs.
std::string matrix_samples(const MatrixShape& shape, const MatrixBatch& batch,
                           const std::vector<uint32_t>& executor, const std::vector<uint32_t>& card);

}  // namespace strata::gpu_tests
