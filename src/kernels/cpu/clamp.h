// Values cut to [-limit, limit]. Arrays have the given dtype (f32 or bf16), arithmetic is f32.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// y = min(max(x, -limit), limit). y may alias x.
void clamp_forward(int64_t n, void* y, const void* x, float limit, DType dtype);
// dx = dy where |x| ≤ limit, else 0. dx may alias dy or x.
void clamp_backward(int64_t n, void* dx, const void* dy, const void* x, float limit, DType dtype);

}  // namespace strata::cpu
