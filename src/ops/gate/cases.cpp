#include "ops/gate/gate.h"

#include <utility>

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

namespace {

const std::pair<std::string, GateKind> kGateKinds[] = {
    {"gate_product", GateKind::kIdentity}, {"gate", GateKind::kSigmoid}, {"gate_silu", GateKind::kSilu}};

}  // namespace

template <>
void cases<ops::Gate>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand rows = act({s.rows, s.width});
    for (const auto& [name, kind] : kGateKinds)
      to.add<ops::Gate>(name + s.name, {.x = rows, .gate = rows}, {kind}, {.ragged = s.ragged});
  }
  to.time<ops::Gate>({.x = timed_rows(), .gate = timed_rows()}, {GateKind::kSigmoid});
}

template <>
void cases<ops::GateGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand rows = act({s.rows, s.width});
    for (const auto& [name, kind] : kGateKinds)
      to.add<ops::GateGrad>(name + "_grad" + s.name, {.dy = rows, .x = rows, .gate = rows}, {kind},
                            {.ragged = s.ragged});
  }
  to.time<ops::GateGrad>({.dy = timed_rows(), .x = timed_rows(), .gate = timed_rows()}, {GateKind::kSigmoid});
}

}  // namespace strata::device
