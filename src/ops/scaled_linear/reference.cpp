#include "kernels/reference/products.h"

#include "ops/reference.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::reference {
namespace {

// The numbers that an operand's codes stand for, as a matrix [count, depth].
class NumbersOf {
 public:
  NumbersOf(const ops::ScaledOperandAttrs& attrs, const Array& codes, const Array& scales,
            const Array& greatest)
      : attrs_(attrs), codes_(codes), scales_(scales) {
    if (attrs.rule.scale_type() == quantize::ScaleType::kE4M3)
      of_tensor_ = static_cast<double>(quantize::nvfp4_tensor_scale(static_cast<float>(greatest.at(0))));
  }
  int64_t count() const { return codes_.shape[attrs_.across ? 1 : 0]; }
  int64_t depth() const { return codes_.shape[attrs_.across ? 0 : 1]; }
  double at(int64_t i, int64_t k) const {
    const int64_t row = attrs_.across ? k : i, column = attrs_.across ? i : k;
    const auto block = [](int64_t at, int64_t extent) {
      return extent == quantize::kWhole ? 0 : at / extent;
    };
    const int64_t scale =
        block(row, attrs_.rule.block().rows) * scales_.shape[1] + block(column, attrs_.rule.block().columns);
    return codes_.at(row * codes_.shape[1] + column) * scales_.at(scale) * of_tensor_;
  }

 private:
  const ops::ScaledOperandAttrs& attrs_;
  const Array &codes_, &scales_;
  double of_tensor_ = 1;
};

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
