#include "ops/cases.h"
#include "ops/clamp/clamp.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Clamp>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::Clamp>("clamp" + s.name, {.x = between_tenths({s.rows, s.width})}, {0.6},
                       {.ragged = s.ragged});
  // Three parts, like q, k and v.
  to.add<ops::Clamp>("clamp_parts", {.x = between_tenths({24, 20}, {12, 4, 4})}, {0.6});
  to.time<ops::Clamp>({.x = timed_qkv()}, {0.1});
}

template <>
void cases<ops::ClampGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width});
    to.add<ops::ClampGrad>("clamp_grad" + s.name, {.dy = x, .x = x}, {0.6}, {.ragged = s.ragged});
  }
  const Operand parts = between_tenths({24, 20}, {12, 4, 4});
  to.add<ops::ClampGrad>("clamp_grad_parts", {.dy = parts, .x = parts}, {0.6});
  to.time<ops::ClampGrad>({.dy = timed_qkv(), .x = timed_qkv()}, {0.1});
}

template <>
void cases<ops::ClampedGated>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::ClampedGated>("clamped_gated" + s.name,
                              {.gate_up = between_tenths({s.rows, 2 * s.width}, {s.width, s.width})},
                              {1.702, 0.6}, {.ragged = s.ragged});
  to.untimed<ops::ClampedGated>(kPass);
}

template <>
void cases<ops::ClampedGatedGrad>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::ClampedGatedGrad>(
        "clamped_gated_grad" + s.name,
        {.dy = act({s.rows, s.width}), .gate_up = between_tenths({s.rows, 2 * s.width}, {s.width, s.width})},
        {1.702, 0.6}, {.ragged = s.ragged});
  to.untimed<ops::ClampedGatedGrad>(kPass);
}

}  // namespace strata::device
