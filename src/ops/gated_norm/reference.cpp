#include <cmath>

#include "ops/gated_norm/gated_norm.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

struct GateAt {
  double value, slope;
};
GateAt gate_at(GateKind kind, double gate) {
  const double s = 1 / (1 + std::exp(-gate));
  switch (kind) {
    case GateKind::kIdentity:
      return {gate, 1};
    case GateKind::kSigmoid:
      return {s, s * (1 - s)};
    case GateKind::kSilu:
      return {gate * s, s + gate * s * (1 - s)};
  }
  return {};
}

// The elements of a row's group.
struct Groups {
  int64_t rows, width, count, size;

  Groups(const Array& x, const ops::GatedNormAttrs& attrs, bool has_means)
      : rows(x.shape[0]),
        width(x.shape[1]),
        count(has_means ? 1 : width / attrs.group),
        size(width / count) {}
  int64_t first(int64_t row, int64_t group) const { return row * width + group * size; }
};

// v at an element.
double normed_value(const ops::GatedNormAttrs& attrs, const Array& x, const Array& gate, int64_t i) {
  return attrs.gate_first ? x.at(i) * gate_at(attrs.kind, gate.at(i)).value : x.at(i);
}
double weight_at(const Array& weight, int64_t column) {
  return weight.at(column % weight.shape[0]);
}

}  // namespace

template <>
void compute(const Arrays<ops::GatedNorm>& at) {
  const auto& in = at.in;
  const Groups groups(in.x, at.attrs, in.means.present());
  for (int64_t row = 0; row < groups.rows; ++row) {
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t first = groups.first(row, g);
      double squares = 0;
      for (int64_t i = first; i < first + groups.size; ++i) {
        const double v = normed_value(at.attrs, in.x, in.gate, i);
        squares += v * v;
      }
      const double mean = in.means.present() ? in.means.at(row) : squares / static_cast<double>(groups.size);
      const double rstd = 1 / std::sqrt(mean + at.attrs.eps);
      at.out.rstd.put(row * groups.count + g, rstd);
      for (int64_t i = first; i < first + groups.size; ++i) {
        const double y =
            normed_value(at.attrs, in.x, in.gate, i) * rstd * weight_at(in.weight, i % groups.width);
        at.out.y.put(i, at.attrs.gate_first ? y : y * gate_at(at.attrs.kind, in.gate.at(i)).value);
      }
    }
  }
}

template <>
void compute(const Arrays<ops::GatedNormGradInput>& at) {
  const auto& in = at.in;
  const Groups groups(in.x, at.attrs, in.means.present());
  for (int64_t row = 0; row < groups.rows; ++row) {
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t first = groups.first(row, g);
      const double rstd = in.rstd.at(row * groups.count + g);
      const auto gradient = [&](int64_t i) {
        const double dn = in.dy.at(i) * weight_at(in.weight, i % groups.width);
        return at.attrs.gate_first ? dn : dn * gate_at(at.attrs.kind, in.gate.at(i)).value;
      };
      double product = 0;
      for (int64_t i = first; i < first + groups.size; ++i)
        product += gradient(i) * normed_value(at.attrs, in.x, in.gate, i);
      const double mean = in.means.present() ? in.means.at(row) : product / static_cast<double>(groups.size);
      for (int64_t i = first; i < first + groups.size; ++i) {
        const GateAt gate = gate_at(at.attrs.kind, in.gate.at(i));
        const double v = normed_value(at.attrs, in.x, in.gate, i);
        const double dv = rstd * (gradient(i) - v * rstd * rstd * mean);
        if (at.attrs.gate_first) {
          at.out.dx.put(i, dv * gate.value);
          at.out.dgate.put(i, dv * in.x.at(i) * gate.slope);
        } else {
          at.out.dgate.put(i, in.dy.at(i) * v * rstd * weight_at(in.weight, i % groups.width) * gate.slope);
          at.out.dx.put(i, dv);
        }
      }
    }
  }
}

template <>
void compute(const Arrays<ops::GatedNormGradWeight>& at) {
  const auto& in = at.in;
  const int64_t rows = in.x.shape[0], width = in.x.shape[1], groups = in.rstd.shape[1],
                weights = at.out.dw.shape[0];
  for (int64_t w = 0; w < weights; ++w) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = w; column < width; column += weights) {
        const int64_t i = row * width + column;
        const double normed =
            normed_value(at.attrs, in.x, in.gate, i) * in.rstd.at(row * groups + column * groups / width);
        sum += in.dy.at(i) * normed * (at.attrs.gate_first ? 1 : gate_at(at.attrs.kind, in.gate.at(i)).value);
      }
    }
    at.out.dw.give(w, sum);
  }
}

template <>
void compute(const Arrays<ops::GatedMeans>& at) {
  const auto& in = at.in;
  const int64_t width = in.x.shape[1];
  for (int64_t row = 0; row < in.x.shape[0]; ++row) {
    double sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double v = normed_value(at.attrs, in.x, in.gate, i);
      if (!in.dy.present()) {
        sum += v * v;
        continue;
      }
      const double dn = in.dy.at(i) * in.weight.at(i % width);
      sum += v * (at.attrs.gate_first ? dn : dn * gate_at(at.attrs.kind, in.gate.at(i)).value);
    }
    at.out.means.put(row, sum / static_cast<double>(at.attrs.group));
  }
}

}  // namespace strata::reference
