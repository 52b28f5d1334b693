#include "kernels/reference/products.h"

#include "ops/reference.h"
#include "ops/scaled_linear/numbers.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::reference {
namespace {

template <typename Emit>
void scaled_products(const NumbersOf& a, const NumbersOf& b, const Emit& emit) {
  products(
      a.count(), b.count(), a.depth(), [&](int64_t i, int64_t k) { return a.at(i, k); },
      [&](int64_t j, int64_t k) { return b.at(j, k); }, emit);
}

}  // namespace

template <>
void compute(const Arrays<ops::ScaledLinear>& at) {
  const NumbersOf x(at.attrs.first, at.in.x, at.in.x_scales, at.in.x_greatest),
      weight(at.attrs.second, at.in.weight, at.in.weight_scales, at.in.weight_greatest);
  const Array& bias = at.in.bias;
  scaled_products(x, weight, [&](int64_t i, int64_t j, double sum) {
    at.out.y.put(i * weight.count() + j, sum + (bias.present() ? bias.at(j) : 0));
  });
}

template <>
void compute(const Arrays<ops::ScaledLinearGradInput>& at) {
  const NumbersOf dy(at.attrs.first, at.in.dy, at.in.dy_scales, at.in.dy_greatest),
      weight(at.attrs.second, at.in.weight, at.in.weight_scales, at.in.weight_greatest);
  scaled_products(dy, weight,
                  [&](int64_t i, int64_t j, double sum) { at.out.dx.put(i * weight.count() + j, sum); });
}

template <>
void compute(const Arrays<ops::ScaledLinearGradWeight>& at) {
  const NumbersOf dy(at.attrs.first, at.in.dy, at.in.dy_scales, at.in.dy_greatest),
      x(at.attrs.second, at.in.x, at.in.x_scales, at.in.x_greatest);
  scaled_products(dy, x, [&](int64_t i, int64_t j, double sum) { at.out.dw.give(i * x.count() + j, sum); });
}

}  // namespace strata::reference
