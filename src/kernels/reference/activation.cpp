#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "ops/ops.h"
#include "tensor/activation_kind.h"

namespace strata::reference {
namespace {

struct ValueAndSlope {
  double value, slope;
};

ValueAndSlope apply(ActivationKind kind, double x) {
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
  }
  return {};
}

ActivationKind kind_of(const Call& call) {
  return call.attrs.as<ops::ActivationAttrs>().kind;
}

// (gate_up) → f(gate) · up
void gated(const Call& call) {
  const Array &gate_up = call.in[0], &y = call.out[0];
  const int64_t width = y.shape[1];
  const ActivationKind kind = kind_of(call);
  parallel_for(y.shape[0], [&](int64_t r) {
    for (int64_t c = 0; c < width; ++c) {
      const double gate = gate_up.at(2 * r * width + c), up = gate_up.at((2 * r + 1) * width + c);
      y.put(r * width + c, apply(kind, gate).value * up);
    }
  });
}

// (dy, gate_up) → d_gate_up
void gated_grad(const Call& call) {
  const Array &dys = call.in[0], &gate_up = call.in[1], &d_gate_up = call.out[0];
  const int64_t width = dys.shape[1];
  const ActivationKind kind = kind_of(call);
  parallel_for(dys.shape[0], [&](int64_t r) {
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at_gate = 2 * r * width + c, at_up = at_gate + width;
      const double up = gate_up.at(at_up), dy = dys.at(r * width + c);
      const ValueAndSlope gate = apply(kind, gate_up.at(at_gate));
      d_gate_up.put(at_gate, dy * up * gate.slope);
      d_gate_up.put(at_up, dy * gate.value);
    }
  });
}

// (x) → y
void activation(const Call& call) {
  parallel_ranges(call.in[0].shape.elements(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) call.out[0].put(i, apply(kind_of(call), call.in[0].at(i)).value);
  });
}

// (dy, x) → dx
void activation_grad(const Call& call) {
  parallel_ranges(call.in[1].shape.elements(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      call.out[0].put(i, call.in[0].at(i) * apply(kind_of(call), call.in[1].at(i)).slope);
  });
}

}  // namespace

std::span<const Row> activation_kernels() {
  static const Row kRows[] = {
      {&ops::kGated, gated},
      {&ops::kGatedGrad, gated_grad},
      {&ops::kActivation, activation},
      {&ops::kActivationGrad, activation_grad},
  };
  return kRows;
}

}  // namespace strata::reference
