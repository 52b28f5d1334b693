#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "ops/clamp.h"

namespace strata::reference {
namespace {

// (x) → min(max(x, -limit), limit)
void clamp(const Call& call) {
  const double limit = call.attrs.as<ops::ClampAttrs>().limit;
  parallel_for(call.in[0].shape.elements(),
               [&](int64_t i) { call.out[0].put(i, std::clamp(call.in[0].at(i), -limit, limit)); });
}

// (dy, x) → dy where |x| ≤ limit, else 0
void clamp_grad(const Call& call) {
  const double limit = call.attrs.as<ops::ClampAttrs>().limit;
  parallel_for(call.in[0].shape.elements(), [&](int64_t i) {
    call.out[0].put(i, std::abs(call.in[1].at(i)) <= limit ? call.in[0].at(i) : 0.0);
  });
}

struct ClampedGate {
  double gate, up, sigmoid;  // cut

  ClampedGate(const ops::ClampedGatedAttrs& attrs, double gate_in, double up_in)
      : gate(std::min(gate_in, attrs.limit)),
        up(std::clamp(up_in, -attrs.limit, attrs.limit)),
        sigmoid(1 / (1 + std::exp(-attrs.alpha * gate))) {}
};

// (gate_up) → (up + 1) · gate · sigmoid(alpha · gate), both cut
void clamped_gated(const Call& call) {
  const auto& attrs = call.attrs.as<ops::ClampedGatedAttrs>();
  const Array &gate_up = call.in[0], &y = call.out[0];
  const int64_t width = y.shape[1];
  parallel_for(y.shape.elements(), [&](int64_t i) {
    const int64_t at = i / width * 2 * width + i % width;
    const ClampedGate cut(attrs, gate_up.at(at), gate_up.at(at + width));
    y.put(i, (cut.up + 1) * cut.gate * cut.sigmoid);
  });
}

// (dy, gate_up) → d_gate_up
void clamped_gated_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::ClampedGatedAttrs>();
  const Array &dy = call.in[0], &gate_up = call.in[1], &to = call.out[0];
  const int64_t width = dy.shape[1];
  parallel_for(dy.shape.elements(), [&](int64_t i) {
    const int64_t at = i / width * 2 * width + i % width;
    const double gate = gate_up.at(at), up = gate_up.at(at + width);
    const ClampedGate cut(attrs, gate, up);
    const double slope = cut.sigmoid * (1 + attrs.alpha * cut.gate * (1 - cut.sigmoid));
    to.put(at, gate > attrs.limit ? 0 : dy.at(i) * (cut.up + 1) * slope);
    to.put(at + width, std::abs(up) > attrs.limit ? 0 : dy.at(i) * cut.gate * cut.sigmoid);
  });
}

}  // namespace

std::span<const Row> clamp_kernels() {
  static const Row kRows[] = {
      {&ops::kClamp, clamp},
      {&ops::kClampGrad, clamp_grad},
      {&ops::kClampedGated, clamped_gated},
      {&ops::kClampedGatedGrad, clamped_gated_grad},
  };
  return kRows;
}

}  // namespace strata::reference
