#include "optim/row_clip/row_clip.h"

#include <cmath>

#include "base/parallel.h"
#include "optim/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::RowSquares>& at) {
  const Array& x = at.in.x;
  parallel_for(x.shape[0], [&](int64_t row) {
    double sum = 0;
    for (int64_t c = 0; c < x.shape[1]; ++c) sum += std::pow(x.at(row * x.shape[1] + c), 2);
    at.out.squares.put(row, sum);
  });
}

template <>
void compute(const Arrays<optim::ClipRows>& at) {
  const Array& gradient = at.in.gradient;
  UpdateScalars scalars;
  std::memcpy(&scalars, at.in.scalars.data, sizeof scalars);
  parallel_for(gradient.shape[0], [&](int64_t row) {
    const double norm = std::sqrt(at.in.gradient_squares.at(row)) * scalars.grad_scale;
    const double weights = std::sqrt(at.in.weight_squares.at(row));
    const double most = at.attrs.limit * std::max(weights, 1e-3);
    for (int64_t c = 0; c < gradient.shape[1]; ++c) {
      const int64_t i = row * gradient.shape[1] + c;
      at.out.gradient.put(i, gradient.at(i) * (norm <= most ? 1 : most / norm));
    }
  });
}

}  // namespace strata::reference
