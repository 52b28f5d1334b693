#include "device/gpu/gpu.h"
#include "optim/row_clip/row_clip.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::RowSquares>& node) {
  const Shape& x = node.in.x->shape;
  return node.kernel(
      [columns = x[1], kernel = gpu::row_squares(x[0])](const Operands<optim::RowSquares>& at) {
        start(at.launch, kernel,
              gpu::RowSquaresArgs{.squares = at.out.squares, .x = at.in.x, .columns = columns});
      });
}

template <>
BoundKernel bind(Gpu, const Bind<optim::ClipRows>& node) {
  const Shape& gradient = node.in.gradient->shape;
  return node.kernel([columns = gradient[1], limit = node.attrs.limit,
                      kernel = gpu::clip_rows(gradient[0])](const Operands<optim::ClipRows>& at) {
    start(at.launch, kernel,
          gpu::ClipRowsArgs{.out = at.out.gradient,
                            .x = at.in.gradient,
                            .squares = at.in.gradient_squares,
                            .weights = at.in.weight_squares,
                            .scalars = update_scalars_at(at.in.scalars),
                            .columns = columns,
                            .limit = limit,
                            .least = optim::kLeastRowNorm});
  });
}

}  // namespace strata::device
