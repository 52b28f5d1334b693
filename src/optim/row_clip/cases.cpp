#include "optim/row_clip/row_clip.h"

#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::RowSquares>(Cases& to) {
  to.add<optim::RowSquares>("row_squares", {.x = f32({12, 20})});
  to.add<optim::RowSquares>("row_squares_ragged", {.x = f32({3, 133})}, {}, {.ragged = true});
  to.time<optim::RowSquares>({.x = timed_matrix()});
}

template <>
void cases<optim::ClipRows>(Cases& to) {
  // Among these rows some are limited and some have no weights.
  const auto squares = [](double step) {
    return Operand{.dtype = DType::kF64, .shape = {12}, .content = [step](int64_t i) {
                     return step * static_cast<double>(i);
                   }};
  };
  to.add<optim::ClipRows>("clip_rows",
                          {.gradient = f32({12, 20}),
                           .gradient_squares = squares(3),
                           .weight_squares = squares(0.5),
                           .scalars = update_scalars()},
                          {.limit = 0.7});
  to.add<optim::ClipRows>("clip_rows_without_weights",
                          {.gradient = f32({12, 20}),
                           .gradient_squares = squares(1),
                           .weight_squares = squares(0),
                           .scalars = update_scalars()},
                          {.limit = 0.01});
  const int64_t rows = timed_matrix().shape[0];
  to.time<optim::ClipRows>({.gradient = timed_matrix(),
                            .gradient_squares = zeros({rows}, DType::kF64),
                            .weight_squares = zeros({rows}, DType::kF64),
                            .scalars = timed_scalars()},
                           {.limit = 0.01});
}

}  // namespace strata::device
