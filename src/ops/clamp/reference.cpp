#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/clamp/clamp.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Clamp>& at) {
  const double limit = at.attrs.limit;
  parallel_for(at.in.x.shape.elements(),
               [&](int64_t i) { at.out.y.put(i, std::clamp(at.in.x.at(i), -limit, limit)); });
}

template <>
void compute(const Arrays<ops::ClampGrad>& at) {
  parallel_for(at.in.x.shape.elements(), [&](int64_t i) {
    at.out.dx.put(i, std::abs(at.in.x.at(i)) <= at.attrs.limit ? at.in.dy.at(i) : 0.0);
  });
}

namespace {

struct ClampedGate {
  double gate, up, sigmoid;  // cut

  ClampedGate(const ops::ClampedGatedAttrs& attrs, double gate_in, double up_in)
      : gate(std::min(gate_in, attrs.limit)),
        up(std::clamp(up_in, -attrs.limit, attrs.limit)),
        sigmoid(1 / (1 + std::exp(-attrs.alpha * gate))) {}
};

}  // namespace

template <>
void compute(const Arrays<ops::ClampedGated>& at) {
  const Array &gate_up = at.in.gate_up, &y = at.out.y;
  const int64_t width = y.shape[1];
  parallel_for(y.shape.elements(), [&](int64_t i) {
    const int64_t gate = i / width * 2 * width + i % width;
    const ClampedGate cut(at.attrs, gate_up.at(gate), gate_up.at(gate + width));
    y.put(i, (cut.up + 1) * cut.gate * cut.sigmoid);
  });
}

template <>
void compute(const Arrays<ops::ClampedGatedGrad>& at) {
  const Array &dy = at.in.dy, &gate_up = at.in.gate_up, &to = at.out.d_gate_up;
  const double alpha = at.attrs.alpha, limit = at.attrs.limit;
  const int64_t width = dy.shape[1];
  parallel_for(dy.shape.elements(), [&](int64_t i) {
    const int64_t first = i / width * 2 * width + i % width;
    const double gate = gate_up.at(first), up = gate_up.at(first + width);
    const ClampedGate cut(at.attrs, gate, up);
    const double slope = cut.sigmoid * (1 + alpha * cut.gate * (1 - cut.sigmoid));
    to.put(first, gate > limit ? 0 : dy.at(i) * (cut.up + 1) * slope);
    to.put(first + width, std::abs(up) > limit ? 0 : dy.at(i) * cut.gate * cut.sigmoid);
  });
}

}  // namespace strata::reference
