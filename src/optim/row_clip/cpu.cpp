#include "optim/row_clip/row_clip.h"

#include "optim/cpu.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::RowSquares>& node) {
  return node.kernel(
      [rows = node.in.x->shape[0], columns = node.in.x->shape[1]](const Operands<optim::RowSquares>& at) {
        cpu::row_squares(at.in.x, rows, columns, at.out.squares);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::ClipRows>& node) {
  const int64_t rows = node.in.gradient->shape[0], columns = node.in.gradient->shape[1];
  return node.kernel([rows, columns, limit = node.attrs.limit](const Operands<optim::ClipRows>& at) {
    const double grad_scale = scalars_at(at.in.scalars)->grad_scale;
    const auto factor = [&](int64_t row) {
      return static_cast<float>(
          optim::row_factor(limit, at.in.gradient_squares[row], at.in.weight_squares[row], grad_scale));
    };
    cpu::scale_rows(at.in.gradient, rows, columns, factor, at.out.gradient);
  });
}

}  // namespace strata::device
