#include <cmath>

#include "base/parallel.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// An element of a row, before and after the norm.
struct GatedElement {
  double x, gate, slope;  // the gate's function and its derivative
  double h, factor;       // factor: of the norm's output

  template <typename Op>
  GatedElement(const Arrays<Op>& at, int64_t i) : x(at.in.x.at(i)) {
    const double z = at.in.gate.at(i), s = 1 / (1 + std::exp(-z));
    const bool silu = at.attrs.gate == GateKind::kSilu;
    gate = silu ? z * s : s;
    slope = silu ? s * (1 + z * (1 - s)) : s * (1 - s);
    h = at.attrs.gate_first ? x * gate : x;
    factor = at.attrs.gate_first ? 1 : gate;
  }
};

// Calls body(row, group, first element of the group, elements of a group) for all groups.
template <typename Op, typename Body>
void for_norm_groups(const Arrays<Op>& at, int64_t groups, const Body& body) {
  const int64_t columns = at.in.x.shape[1], width = columns / groups;
  parallel_for(at.in.x.shape[0], [&](int64_t row) {
    for (int64_t g = 0; g < groups; ++g) body(row, g, row * columns + g * width, width);
  });
}

// The weight of column c of group g.
double weight_at(const Array& weight, bool shared, int64_t g, int64_t c, int64_t width) {
  return weight.at(shared ? c : g * width + c);
}

}  // namespace

template <>
void compute(const Arrays<ops::GatedNorm>& at) {
  const Array& rstds = at.out.rstd;
  const int64_t groups = rstds.shape[1];
  for_norm_groups(at, groups, [&](int64_t row, int64_t g, int64_t first, int64_t width) {
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += std::pow(GatedElement(at, first + c).h, 2);
    const double mean = at.in.means.present() ? at.in.means.at(row) : squares / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(mean + at.attrs.eps);
    rstds.put(row * groups + g, rstd);
    for (int64_t c = 0; c < width; ++c) {
      const GatedElement element(at, first + c);
      at.out.y.put(first + c,
                   element.h * rstd * weight_at(at.in.weight, at.attrs.shared, g, c, width) * element.factor);
    }
  });
}

template <>
void compute(const Arrays<ops::GatedNormGradInput>& at) {
  const int64_t groups = at.in.rstd.shape[1];
  for_norm_groups(at, groups, [&](int64_t row, int64_t g, int64_t first, int64_t width) {
    const double rstd = at.in.rstd.at(row * groups + g);
    const auto weight = [&](int64_t c) { return weight_at(at.in.weight, at.attrs.shared, g, c, width); };
    double mean = 0;
    for (int64_t c = 0; c < width; ++c) {
      const GatedElement element(at, first + c);
      mean += at.in.dy.at(first + c) * weight(c) * element.factor * element.h / static_cast<double>(width);
    }
    if (at.in.means.present()) mean = at.in.means.at(row);
    for (int64_t c = 0; c < width; ++c) {
      const GatedElement element(at, first + c);
      const double weighted = at.in.dy.at(first + c) * weight(c);
      const double dh = rstd * (weighted * element.factor - element.h * rstd * rstd * mean);
      const double dgate = at.attrs.gate_first ? dh * element.x : weighted * element.x * rstd;
      at.out.dx.put(first + c, at.attrs.gate_first ? dh * element.gate : dh);
      at.out.dgate.put(first + c, dgate * element.slope);
    }
  });
}

template <>
void compute(const Arrays<ops::GatedNormGradWeight>& at) {
  const int64_t groups = at.in.rstd.shape[1], columns = at.in.x.shape[1], width = columns / groups;
  const Array& dw = at.out.dw;
  std::vector<double> sums(static_cast<size_t>(dw.shape[0]));
  for (int64_t i = 0; i < at.in.x.shape.elements(); ++i) {
    const GatedElement element(at, i);
    const int64_t row = i / columns, c = i % columns;
    sums[static_cast<size_t>(at.attrs.shared ? c % width : c)] +=
        at.in.dy.at(i) * element.factor * element.h * at.in.rstd.at(row * groups + c / width);
  }
  for (size_t c = 0; c < sums.size(); ++c) dw.give(static_cast<int64_t>(c), sums[c]);
}

template <>
void compute(const Arrays<ops::GatedMeans>& at) {
  for_norm_groups(at, 1, [&](int64_t row, int64_t, int64_t first, int64_t width) {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) {
      const GatedElement element(at, first + c);
      sum += element.h *
             (at.in.dy.present() ? at.in.dy.at(first + c) * at.in.weight.at(c) * element.factor : element.h);
    }
    at.out.means.put(row, sum / static_cast<double>(at.attrs.group));
  });
}

}  // namespace strata::reference
