#include "ops/cases.h"
#include "ops/recurrence_gates/recurrence_gates.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Eight heads, or three.
struct GatesCase {
  std::string name;
  ops::RecurrenceGatesAttrs attrs;
  int64_t rows = 24, heads = 8, channels = 1;  // decays a head

  int64_t width() const { return heads * channels; }
  bool is_delta() const { return attrs.kind == RecurrenceKind::kDelta; }
  bool is_ragged() const { return heads % 2 != 0; }
  Operand a() const { return act({rows, width()}); }
  Operand b() const { return is_delta() ? act({rows, heads}) : absent(); }
  Operand a_log() const { return f32({heads}); }
  Operand dt_bias() const { return f32({width()}); }
  Operand dg() const { return f32({rows, width()}); }
  Operand dbeta() const { return f32({rows, heads}); }
};
std::vector<GatesCase> forms_of_gates() {
  const ops::RecurrenceGatesAttrs delta{}, twice{.beta_scale = 2}, steps{.kind = RecurrenceKind::kStateSpace};
  return {{"", delta},
          {"_twice", twice},
          {"_channels", delta, 24, 8, 20},
          {"_channels_ragged", delta, 21, 3, 7},
          {"_steps", steps},
          {"_steps_ragged", steps, 35, 23}};
}
// Steps beyond both bounds, none near one.
GatesCase clamped_gates() {
  return {"_clamped", {.kind = RecurrenceKind::kStateSpace, .least = 0.65, .greatest = 0.9}};
}
Operand clamped_a(const GatesCase& one) {
  Operand a = one.a();
  a.content = [](int64_t i) { return 0.6 * static_cast<double>(i % 5) - 1.2; };
  return a;
}

constexpr int64_t kTimedGateHeads = 16, kTimedGateChannels = 64;
const GatesCase kTimedGates{"", {}, kTimedTokens, kTimedGateHeads, kTimedGateChannels};

}  // namespace

template <>
void cases<ops::RecurrenceGates>(Cases& to) {
  for (const GatesCase& one : forms_of_gates())
    to.add<ops::RecurrenceGates>("recurrence_gates" + one.name,
                                 {.a = one.a(), .b = one.b(), .a_log = one.a_log(), .dt_bias = one.dt_bias()},
                                 one.attrs, {.ragged = one.is_ragged(), .differentiable = {{"g", "beta"}}});
  const GatesCase clamped = clamped_gates();
  to.add<ops::RecurrenceGates>(
      "recurrence_gates_clamped",
      {.a = clamped_a(clamped), .a_log = clamped.a_log(), .dt_bias = zeros({clamped.width()})}, clamped.attrs,
      {.differentiable = {{"g", "beta"}}});
  const GatesCase& timed = kTimedGates;
  to.time<ops::RecurrenceGates>(
      {.a = timed.a(), .b = timed.b(), .a_log = timed.a_log(), .dt_bias = timed.dt_bias()}, timed.attrs);
}

template <>
void cases<ops::RecurrenceGatesGradInput>(Cases& to) {
  const auto with = [](const GatesCase& one) -> ops::RecurrenceGatesGradInput::In<Sample> {
    return {.dg = one.dg(),
            .dbeta = one.dbeta(),
            .a = one.a(),
            .b = one.b(),
            .a_log = one.a_log(),
            .dt_bias = one.dt_bias()};
  };
  for (const GatesCase& one : forms_of_gates())
    to.add<ops::RecurrenceGatesGradInput>("recurrence_gates_grad_input" + one.name, with(one), one.attrs,
                                          {.ragged = one.is_ragged()});
  const GatesCase clamped = clamped_gates();
  auto in = with(clamped);
  in.a = clamped_a(clamped);
  in.dt_bias = zeros({clamped.width()});
  to.add<ops::RecurrenceGatesGradInput>("recurrence_gates_grad_input_clamped", in, clamped.attrs);
  to.time<ops::RecurrenceGatesGradInput>(with(kTimedGates), kTimedGates.attrs);
}

template <>
void cases<ops::RecurrenceGatesGradWeight>(Cases& to) {
  const auto with = [](const GatesCase& one) -> ops::RecurrenceGatesGradWeight::In<Sample> {
    return {.dg = one.dg(),
            .dbeta = one.is_delta() ? absent() : one.dbeta(),
            .a = one.a(),
            .a_log = one.a_log(),
            .dt_bias = one.dt_bias()};
  };
  for (const GatesCase& one : forms_of_gates())
    to.add<ops::RecurrenceGatesGradWeight>("recurrence_gates_grad_weight" + one.name, with(one), one.attrs,
                                           {.ragged = one.is_ragged()});
  const GatesCase clamped = clamped_gates();
  auto in = with(clamped);
  in.a = clamped_a(clamped);
  in.dt_bias = zeros({clamped.width()});
  to.add<ops::RecurrenceGatesGradWeight>("recurrence_gates_grad_weight_clamped", in, clamped.attrs);
  to.time<ops::RecurrenceGatesGradWeight>(with(kTimedGates), kTimedGates.attrs);
}

}  // namespace strata::device
