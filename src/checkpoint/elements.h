// Elements on their way between memory and files.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::checkpoint {

bool is_float(DType dtype);

// convert() of rows of `columns` elements, which lie out_pitch and in_pitch elements apart.
void convert_rows(void* out, DType out_type, int64_t out_pitch, const void* in, DType in_type,
                  int64_t in_pitch, int64_t rows, int64_t columns);

// Index of the first NaN or infinity, or -1.
int64_t first_not_finite(const void* data, DType dtype, int64_t n);

}  // namespace strata::checkpoint
