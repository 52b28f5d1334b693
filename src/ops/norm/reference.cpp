#include <cmath>

#include "base/parallel.h"
#include "ops/norm/norm.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// Layer norm subtracts the mean and has a bias; RMS norm does neither.

template <typename Op>
double norm_weight(const Arrays<Op>& at, int64_t c) {
  if constexpr (requires { at.attrs.weight_offset; }) return at.in.weight.at(c) + at.attrs.weight_offset;
  return at.in.weight.at(c);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

template <typename Op>
void norm_forward(const Arrays<Op>& at) {
  const Array &x = at.in.x, &residual = at.in.residual;
  const int64_t dim = x.shape[1];
  parallel_for(x.shape[0], [&](int64_t r) {
    std::vector<double> h = x.row(r);
    if (residual.present()) {
      for (int64_t c = 0; c < dim; ++c)
        at.out.h.put(r * dim + c, h[static_cast<size_t>(c)] + residual.at(r * dim + c));
      h = at.out.h.row(r);  // as it was rounded
    }
    double mean = 0;
    if constexpr (requires { at.out.mean; }) {
      mean = mean_of(h);
      at.out.mean.put(r, mean);
    }
    std::vector<double> squares;
    for (double& value : h) {
      value -= mean;
      squares.push_back(value * value);
    }
    const double rstd = 1 / std::sqrt(mean_of(squares) + at.attrs.eps);
    at.out.rstd.put(r, rstd);
    for (int64_t c = 0; c < dim; ++c) {
      double bias = 0;
      if constexpr (requires { at.in.bias; }) bias = at.in.bias.at(c);
      at.out.y.put(r * dim + c, h[static_cast<size_t>(c)] * rstd * norm_weight(at, c) + bias);
    }
  });
}

template <typename Op>
double normalised(const Arrays<Op>& at, int64_t r, int64_t i) {
  double mean = 0;
  if constexpr (requires { at.in.mean; }) mean = at.in.mean.at(r);
  return (at.in.h.at(i) - mean) * at.in.rstd.at(r);
}

template <typename Op>
void norm_grad_input(const Arrays<Op>& at) {
  const Array &dy = at.in.dy, &more = at.in.dh;
  const int64_t dim = dy.shape[1];
  parallel_for(dy.shape[0], [&](int64_t r) {
    std::vector<double> g, along;
    for (int64_t c = 0; c < dim; ++c) {
      g.push_back(dy.at(r * dim + c) * norm_weight(at, c));
      along.push_back(g.back() * normalised(at, r, r * dim + c));
    }
    double shift = 0;
    if constexpr (requires { at.in.mean; }) shift = mean_of(g);
    const double slope = mean_of(along);
    for (int64_t c = 0; c < dim; ++c) {
      const int64_t i = r * dim + c;
      const double own =
          at.in.rstd.at(r) * (g[static_cast<size_t>(c)] - shift - normalised(at, r, i) * slope);
      at.out.dx.put(i, own + (more.present() ? more.at(i) : 0));
    }
  });
}

template <typename Op>
void norm_grad_weight(const Arrays<Op>& at) {
  const Array& dy = at.in.dy;
  const int64_t dim = dy.shape[1];
  parallel_for(dim, [&](int64_t c) {
    double weight = 0, bias = 0;
    for (int64_t r = 0; r < dy.shape[0]; ++r) {
      const int64_t i = r * dim + c;
      weight += dy.at(i) * normalised(at, r, i);
      bias += dy.at(i);
    }
    at.out.dw.give(c, weight);
    if constexpr (requires { at.out.db; }) at.out.db.give(c, bias);
  });
}

}  // namespace

template <>
void compute(const Arrays<ops::RmsNorm>& at) {
  norm_forward(at);
}
template <>
void compute(const Arrays<ops::RmsNormGradInput>& at) {
  norm_grad_input(at);
}
template <>
void compute(const Arrays<ops::RmsNormGradWeight>& at) {
  norm_grad_weight(at);
}
template <>
void compute(const Arrays<ops::LayerNorm>& at) {
  norm_forward(at);
}
template <>
void compute(const Arrays<ops::LayerNormGradInput>& at) {
  norm_grad_input(at);
}
template <>
void compute(const Arrays<ops::LayerNormGradWeight>& at) {
  norm_grad_weight(at);
}

}  // namespace strata::reference
