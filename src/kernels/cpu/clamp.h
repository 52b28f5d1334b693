// Clamps values to [-limit, limit]. Arrays have the given dtype (f32, bf16 or fp16); arithmetic is f32.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// y = min(max(x, -limit), limit). y may alias x.
void clamp_forward(int64_t n, void* y, const void* x, float limit, DType dtype);
// dx = dy where |x| ≤ limit, else 0. dx may alias dy or x.
void clamp_backward(int64_t n, void* dx, const void* dy, const void* x, float limit, DType dtype);

// Rows [gate | up] of `ffn` columns each: y = (clamp(up, ±limit) + 1) · g · sigmoid(alpha · g), g = min(gate,
// limit). d_gate_up may alias gate_up.
struct ClampedGate {
  int64_t rows = 0, ffn = 0;
  float alpha = 1, limit = 0;
  DType dtype = DType::kF32;
};
void clamped_gated_forward(const ClampedGate& shape, void* y, const void* gate_up);
void clamped_gated_backward(const ClampedGate& shape, void* d_gate_up, const void* dy, const void* gate_up);

}  // namespace strata::cpu
