// Activation functions of feed-forward blocks. Arrays have the given dtype (f32, bf16, fp16); arithmetic is f32;
// exponentials are accurate to a few ulp.
#pragma once

#include <cstdint>

#include "tensor/activation_kind.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// y = f(x), element by element. y may alias x.
void activation_forward(ActivationKind kind, int64_t n, void* y, const void* x, DType dtype);
// dx = dy f'(x). dx may alias dy or x.
void activation_backward(ActivationKind kind, int64_t n, void* dx, const void* dy, const void* x,
                         DType dtype);

// y[rows, ffn] = f(gate) * up; a row of gate_up is [gate | up], 2 * ffn elements.
void gated_forward(ActivationKind kind, int64_t rows, int64_t ffn, void* y, const void* gate_up, DType dtype);
// d_gate_up[rows, 2 * ffn] from dy[rows, ffn]; d_gate_up may alias gate_up.
void gated_backward(ActivationKind kind, int64_t rows, int64_t ffn, void* d_gate_up, const void* dy,
                    const void* gate_up, DType dtype);

}  // namespace strata::cpu
