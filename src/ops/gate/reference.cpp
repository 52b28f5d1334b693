#include <cmath>

#include "ops/gate/gate.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

struct AtGate {
  double value, slope;
};
AtGate at_gate(GateKind kind, double gate) {
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

}  // namespace

template <>
void compute(const Arrays<ops::Gate>& at) {
  for (int64_t i = 0; i < at.out.y.shape.elements(); ++i)
    at.out.y.put(i, at.in.x.at(i) * at_gate(at.attrs.kind, at.in.gate.at(i)).value);
}

template <>
void compute(const Arrays<ops::GateGrad>& at) {
  for (int64_t i = 0; i < at.out.dx.shape.elements(); ++i) {
    const AtGate gate = at_gate(at.attrs.kind, at.in.gate.at(i));
    const double dy = at.in.dy.at(i), x = at.in.x.at(i);
    at.out.dx.put(i, dy * gate.value);
    at.out.dgate.put(i, dy * x * gate.slope);
  }
}

}  // namespace strata::reference
