// Conversion and checks of elements between memory and files.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::checkpoint {

bool is_float(DType dtype);

// Converts rows of `columns` elements; pitches count elements from one row to the next.
void convert_rows(void* out, DType out_type, int64_t out_pitch, const void* in, DType in_type,
                  int64_t in_pitch, int64_t rows, int64_t columns);

// Index of the first NaN or infinity, or -1.
int64_t first_not_finite(const void* data, DType dtype, int64_t n);

}  // namespace strata::checkpoint
