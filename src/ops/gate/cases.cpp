#include "ops/cases.h"
#include "ops/gate/gate.h"

namespace strata::device {

using namespace op_rows;

namespace {

struct GateCase {
  const char* name;
  GateKind kind;
};
constexpr GateCase kGateCases[] = {
    {"_identity", GateKind::kIdentity}, {"_sigmoid", GateKind::kSigmoid}, {"_silu", GateKind::kSilu}};

}  // namespace

template <>
void cases<ops::Gate>(Cases& to) {
  for (const auto& [name, kind] : kGateCases) {
    for (const Sizes& s : Cases::sizes()) {
      const Operand rows = act({s.rows, s.width});
      to.add<ops::Gate>("gate" + std::string(name) + s.name, {.x = rows, .gate = rows}, {kind},
                        {.ragged = s.ragged});
    }
  }
  to.time<ops::Gate>({.x = timed_rows(), .gate = timed_rows()}, {GateKind::kSigmoid});
}

template <>
void cases<ops::GateGrad>(Cases& to) {
  for (const auto& [name, kind] : kGateCases) {
    for (const Sizes& s : Cases::sizes()) {
      const Operand rows = act({s.rows, s.width});
      to.add<ops::GateGrad>("gate_grad" + std::string(name) + s.name, {.dy = rows, .x = rows, .gate = rows},
                            {kind}, {.ragged = s.ragged});
    }
  }
  to.time<ops::GateGrad>({.dy = timed_rows(), .x = timed_rows(), .gate = timed_rows()}, {GateKind::kSigmoid});
}

}  // namespace strata::device
