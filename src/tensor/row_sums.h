// Sums of rows of f32 or bf16 numbers.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace strata {

// to[i] = Σ rows[r][i] from the first row to the last, i in [0, width): summed in fp32 and rounded once. `to`
// overlaps none of the rows.
void sum_rows(float* to, std::span<const float* const> rows, int64_t width);
void sum_rows(BF16* to, std::span<const BF16* const> rows, int64_t width);
void sum_rows(F16* to, std::span<const F16* const> rows, int64_t width);

}  // namespace strata
