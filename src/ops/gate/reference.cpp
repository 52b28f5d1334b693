#include <cmath>

#include "base/parallel.h"
#include "ops/gate/gate.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

struct GateAt {
  double value = 0, slope = 0;

  GateAt(GateKind kind, double x) : value(x), slope(1) {
    if (kind == GateKind::kIdentity) return;
    const double sigmoid = 1 / (1 + std::exp(-x));
    const bool silu = kind == GateKind::kSilu;
    value = silu ? x * sigmoid : sigmoid;
    slope = silu ? sigmoid * (1 + x * (1 - sigmoid)) : sigmoid * (1 - sigmoid);
  }
};

}  // namespace

template <>
void compute(const Arrays<ops::Gate>& at) {
  parallel_for(at.in.x.shape.elements(), [&](int64_t i) {
    at.out.y.put(i, at.in.x.at(i) * GateAt(at.attrs.kind, at.in.gate.at(i)).value);
  });
}

template <>
void compute(const Arrays<ops::GateGrad>& at) {
  parallel_for(at.in.x.shape.elements(), [&](int64_t i) {
    const GateAt gate(at.attrs.kind, at.in.gate.at(i));
    const double dy = at.in.dy.at(i), x = at.in.x.at(i);
    at.out.dx.put(i, dy * gate.value);
    at.out.dgate.put(i, dy * x * gate.slope);
  });
}

}  // namespace strata::reference
