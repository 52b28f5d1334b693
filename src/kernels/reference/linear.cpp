#include <cmath>

#include "kernels/reference/call.h"
#include "kernels/reference/products.h"
#include "ops/ops.h"

namespace strata::reference {
namespace {

// (x, w, bias?) → y
void linear(const Call& call) {
  const Array &x = call.in[0], &w = call.in[1], &bias = call.in[2], &y = call.out[0];
  const int64_t k = x.shape[1], n = w.shape[0];
  products(
      x.shape[0], n, k, [&](int64_t i, int64_t s) { return x.at(i * k + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(j * k + s), x.dtype); },
      [&](int64_t i, int64_t j, double sum) { y.put(i * n + j, sum + (bias.present() ? bias.at(j) : 0)); });
}

// (dy, w) → dx
void linear_grad_input(const Call& call) {
  const Array &dy = call.in[0], &w = call.in[1], &dx = call.out[0];
  const int64_t n = w.shape[0], k = w.shape[1];
  products(
      dy.shape[0], k, n, [&](int64_t i, int64_t s) { return dy.at(i * n + s); },
      [&](int64_t j, int64_t s) { return rounded(w.at(s * k + j), dy.dtype); },
      [&](int64_t i, int64_t j, double sum) { dx.put(i * k + j, sum); });
}

// (dy, x) → dw
void linear_grad_weight(const Call& call) {
  const Array &dy = call.in[0], &x = call.in[1], &dw = call.out[0];
  const int64_t n = dy.shape[1], k = x.shape[1];
  products(
      n, k, dy.shape[0], [&](int64_t i, int64_t s) { return dy.at(s * n + i); },
      [&](int64_t j, int64_t s) { return x.at(s * k + j); },
      [&](int64_t i, int64_t j, double sum) { dw.give(i * k + j, sum); });
}

// (dy) → sums
void column_sums(const Call& call) {
  const Array &dy = call.in[0], &sums = call.out[0];
  const int64_t columns = dy.shape[1];
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < dy.shape[0]; ++r) sum += dy.at(r * columns + c);
    sums.give(c, sum);
  }
}

// (x) → y
void softcap(const Call& call) {
  const double cap = call.attrs.as<ops::SoftcapAttrs>().softcap;
  for (int64_t i = 0; i < call.in[0].shape.elements(); ++i)
    call.out[0].put(i, cap * std::tanh(call.in[0].at(i) / cap));
}

}  // namespace

std::span<const Row> linear_kernels() {
  static const Row kRows[] = {
      {&ops::kLinear, linear},
      {&ops::kLinearGradInput, linear_grad_input},
      {&ops::kLinearGradWeight, linear_grad_weight},
      {&ops::kColumnSums, column_sums},
      {&ops::kSoftcap, softcap},
  };
  return kRows;
}

}  // namespace strata::reference
