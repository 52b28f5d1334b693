// Activation functions of feed-forward blocks. Arrays have the given dtype (f32 or bf16), arithmetic is f32;
// exponentials are accurate to a few ulp.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// y[rows, ffn] = silu(gate) * up, where a row of gate_up is [gate | up] of 2 * ffn elements.
void swiglu_forward(int64_t rows, int64_t ffn, void* y, const void* gate_up, DType dtype);
// d_gate_up[rows, 2 * ffn] from dy[rows, ffn]; d_gate_up may alias gate_up.
void swiglu_backward(int64_t rows, int64_t ffn, void* d_gate_up, const void* dy, const void* gate_up,
                     DType dtype);

// y = x Phi(x), with Phi in its tanh form: x * logistic(2 sqrt(2/pi) (x + 0.044715 x³)). y may alias x.
void gelu_tanh_forward(int64_t n, void* y, const void* x, DType dtype);
void gelu_tanh_backward(int64_t n, void* dx, const void* dy, const void* x,
                        DType dtype);  // dx may alias dy, x

// y = x Phi(x), exact: Phi(x) = erfc(-x / sqrt 2) / 2. y may alias x.
void gelu_erf_forward(int64_t n, void* y, const void* x, DType dtype);
void gelu_erf_backward(int64_t n, void* dx, const void* dy, const void* x,
                       DType dtype);  // dx may alias dy, x

}  // namespace strata::cpu
