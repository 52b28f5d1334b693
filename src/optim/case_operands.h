// Operands and attributes of the cases of optimizers.
#pragma once

#include "ops/cases.h"
#include "optim/optimizer.h"
#include "tensor/update_scalars.h"

namespace strata::device::op_rows {

inline Operand update_scalars() {
  return bytes_of(UpdateScalars{.lr = 0.1f, .grad_scale = 0.25f, .skip = 0, .update = 3},
                  optim::kScalarBytes);
}

inline Operand partials(int64_t n) {
  return {.dtype = DType::kF64, .shape = {n}, .content = [](int64_t i) {
            return 0.3 + 0.7 * static_cast<double>(i);
          }};
}
// Moments of one byte.
inline Operand codes(Shape shape) {
  return {.dtype = DType::kU8, .shape = shape, .content = [](int64_t i) {
            return static_cast<double>(i * 37 % 256);
          }};
}

inline optim::UpdateAttrs update_with(const optim::Optimizer& optimizer, double lr_scale = 0.5) {
  return {{.weight_decay = 0.1, .lr_scale = lr_scale, .optimizer = optimizer}};
}
// Some rows of a parameter of 96: of k in [q | k | v], whose states k and v share.
inline optim::UpdateAttrs update_rows(const optim::Optimizer& optimizer, int64_t first, int64_t count,
                                      int64_t state, int64_t states, double lr_scale = 0.5) {
  optim::UpdateAttrs attrs = update_with(optimizer, lr_scale);
  attrs.first_row = first;
  attrs.rows = count;
  attrs.of_rows = 96;
  attrs.state_row = state;
  attrs.state_rows = states;
  return attrs;
}

// Operands of the sizes at which rates are measured.
inline Operand timed_matrix() {
  return f32({1536, 512});
}
inline Operand timed_state(DType dtype = DType::kF32) {
  return zeros(timed_matrix().shape, dtype);
}
inline Operand timed_scalars() {
  return zeros({optim::kScalarBytes}, DType::kU8);
}

}  // namespace strata::device::op_rows
