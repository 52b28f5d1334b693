#include <cmath>

#include "base/parallel.h"
#include "ops/activation/activation.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

struct ValueAndSlope {
  double value, slope;
};

ValueAndSlope activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu: {
      const double sigmoid = 1 / (1 + std::exp(-x));
      return {x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))};
    }
    case ActivationKind::kGeluTanh: {
      constexpr double kGelu = 0.7978845608028654;  // √(2/π)
      const double tangent = std::tanh(kGelu * (x + 0.044715 * x * x * x));
      const double inner = kGelu * (1 + 3 * 0.044715 * x * x);
      return {0.5 * x * (1 + tangent), 0.5 * (1 + tangent) + 0.5 * x * (1 - tangent * tangent) * inner};
    }
    case ActivationKind::kGeluErf: {
      const double cumulative = 0.5 * std::erfc(-x / std::sqrt(2.0));
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
      return {x * cumulative, cumulative + x * density};
    }
    case ActivationKind::kRelu:
      return {x > 0 ? x : 0, x > 0 ? 1.0 : 0.0};
    case ActivationKind::kRelu2:
      return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0};
  }
  return {};
}

}  // namespace

template <>
void compute(const Arrays<ops::Activation>& at) {
  parallel_for(at.in.x.shape.elements(),
               [&](int64_t i) { at.out.y.put(i, activated(at.attrs.kind, at.in.x.at(i)).value); });
}

template <>
void compute(const Arrays<ops::ActivationGrad>& at) {
  parallel_for(at.in.x.shape.elements(), [&](int64_t i) {
    at.out.dx.put(i, at.in.dy.at(i) * activated(at.attrs.kind, at.in.x.at(i)).slope);
  });
}

template <>
void compute(const Arrays<ops::Gated>& at) {
  const Array &gate_up = at.in.gate_up, &y = at.out.y;
  const int64_t width = y.shape[1];
  parallel_for(y.shape[0], [&](int64_t r) {
    for (int64_t c = 0; c < width; ++c) {
      const double gate = gate_up.at(2 * r * width + c), up = gate_up.at((2 * r + 1) * width + c);
      y.put(r * width + c, activated(at.attrs.kind, gate).value * up);
    }
  });
}

template <>
void compute(const Arrays<ops::GatedGrad>& at) {
  const Array &gate_up = at.in.gate_up, &to = at.out.d_gate_up;
  const int64_t width = at.in.dy.shape[1];
  parallel_for(at.in.dy.shape[0], [&](int64_t r) {
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at_gate = 2 * r * width + c, at_up = at_gate + width;
      const double up = gate_up.at(at_up), dy = at.in.dy.at(r * width + c);
      const ValueAndSlope gate = activated(at.attrs.kind, gate_up.at(at_gate));
      to.put(at_gate, dy * up * gate.slope);
      to.put(at_up, dy * gate.value);
    }
  });
}

}  // namespace strata::reference
