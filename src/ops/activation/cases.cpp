#include <utility>

#include "ops/activation/activation.h"
#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

namespace {

const std::pair<std::string, ActivationKind> kActivationKinds[] = {{"silu", ActivationKind::kSilu},
                                                                   {"gelu_tanh", ActivationKind::kGeluTanh},
                                                                   {"gelu_erf", ActivationKind::kGeluErf},
                                                                   {"relu", ActivationKind::kRelu},
                                                                   {"relu2", ActivationKind::kRelu2}};

}  // namespace

template <>
void cases<ops::Activation>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    for (const auto& [name, kind] : kActivationKinds)
      to.add<ops::Activation>(name + s.name, {.x = between_tenths({s.rows, s.width})}, {kind},
                              {.ragged = s.ragged});
  }
  to.time<ops::Activation>({.x = timed_rows(kTimedFfn)}, {ActivationKind::kGeluTanh});
}

template <>
void cases<ops::ActivationGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width});
    for (const auto& [name, kind] : kActivationKinds)
      to.add<ops::ActivationGrad>(name + "_grad" + s.name, {.dy = x, .x = x}, {kind}, {.ragged = s.ragged});
  }
  to.time<ops::ActivationGrad>({.dy = timed_rows(kTimedFfn), .x = timed_rows(kTimedFfn)},
                               {ActivationKind::kGeluTanh});
}

template <>
void cases<ops::Gated>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    for (const auto& [name, kind] : kActivationKinds)
      to.add<ops::Gated>(name + "_gated" + s.name,
                         {.gate_up = between_tenths({s.rows, 2 * s.width}, {s.width, s.width})}, {kind},
                         {.ragged = s.ragged});
  }
  to.time<ops::Gated>({.gate_up = timed_rows(2 * kTimedFfn, {kTimedFfn, kTimedFfn})},
                      {ActivationKind::kSilu});
}

template <>
void cases<ops::GatedGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    for (const auto& [name, kind] : kActivationKinds)
      to.add<ops::GatedGrad>(
          name + "_gated_grad" + s.name,
          {.dy = act({s.rows, s.width}), .gate_up = act({s.rows, 2 * s.width}, {s.width, s.width})}, {kind},
          {.ragged = s.ragged});
  }
  to.time<ops::GatedGrad>(
      {.dy = timed_rows(kTimedFfn), .gate_up = timed_rows(2 * kTimedFfn, {kTimedFfn, kTimedFfn})},
      {ActivationKind::kSilu});
}

}  // namespace strata::device
