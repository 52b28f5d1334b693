// A value times a function of its gate. Arrays have the given dtype (f32, bf16 or fp16); arithmetic is f32.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/gate_kind.h"

namespace strata::cpu {

// y = x · f(gate), element by element. y may alias x or gate.
void gate_forward(GateKind kind, int64_t n, void* y, const void* x, const void* gate, DType dtype);
// dx = dy · f(gate), dgate = dy · x · f'(gate). Each may alias one of the inputs.
void gate_backward(GateKind kind, int64_t n, void* dx, void* dgate, const void* dy, const void* x,
                   const void* gate, DType dtype);

}  // namespace strata::cpu
