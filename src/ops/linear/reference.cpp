#include "kernels/reference/products.h"

#include "ops/linear/linear.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Linear>& at) {
  const Array &x = at.in.x, &w = at.in.weight, &bias = at.in.bias, &y = at.out.y;
  const int64_t k = x.shape[1], n = w.shape[0];
  products(
      x.shape[0], n, k, [&](int64_t i, int64_t s) { return x.at(i * k + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(j * k + s), x.dtype); },
      [&](int64_t i, int64_t j, double sum) { y.put(i * n + j, sum + (bias.present() ? bias.at(j) : 0)); });
}

template <>
void compute(const Arrays<ops::LinearGradInput>& at) {
  const Array &dy = at.in.dy, &w = at.in.weight, &dx = at.out.dx;
  const int64_t n = w.shape[0], k = w.shape[1];
  products(
      dy.shape[0], k, n, [&](int64_t i, int64_t s) { return dy.at(i * n + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(s * k + j), dy.dtype); },
      [&](int64_t i, int64_t j, double sum) { dx.put(i * k + j, sum); });
}

template <>
void compute(const Arrays<ops::LinearGradWeight>& at) {
  const Array &dy = at.in.dy, &x = at.in.x;
  const int64_t n = dy.shape[1], k = x.shape[1];
  products(
      n, k, dy.shape[0], [&](int64_t i, int64_t s) { return dy.at(s * n + i); },
      [&](int64_t j, int64_t s) { return x.at(s * k + j); },
      [&](int64_t i, int64_t j, double sum) { at.out.dw.give(i * k + j, sum); });
}

template <>
void compute(const Arrays<ops::ColumnSums>& at) {
  const Array& dy = at.in.dy;
  const int64_t columns = dy.shape[1];
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < dy.shape[0]; ++r) sum += dy.at(r * columns + c);
    at.out.sums.give(c, sum);
  }
}

}  // namespace strata::reference
