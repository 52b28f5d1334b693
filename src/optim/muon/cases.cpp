#include "optim/case_operands.h"
#include "optim/muon/muon.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::MuonUpdate>(Cases& to) {
  const CaseOptions<optim::MuonUpdate> updates{
      .updates = {{"parameter", "parameter"}, {"momentum", "momentum"}}, .replicated_only = true};
  const auto add = [&](const char* name, const Shape& parameter, const Shape& momentum,
                       const optim::UpdateAttrs& attrs) {
    to.add<optim::MuonUpdate>(name,
                              {.parameter = f32(parameter),
                               .momentum = f32(momentum),
                               .gradient = f32(parameter),
                               .scalars = update_scalars()},
                              attrs, updates);
  };
  add("muon_wide", {12, 20}, {12, 20}, update_with(optim::Muon{}));
  add("muon_tall", {20, 12}, {20, 12}, update_with(optim::Muon{}));
  add("muon_without_nesterov", {16, 16}, {16, 16}, update_with(optim::Muon{.nesterov = false}));
  add("muon_rows", {96, 20}, {48, 20}, update_rows(optim::Muon{}, 72, 24, 24, 48));
  to.time<optim::MuonUpdate>({.parameter = timed_matrix(),
                              .momentum = timed_state(),
                              .gradient = timed_matrix(),
                              .scalars = timed_scalars()},
                             update_with(optim::Muon{}, 1),
                             {.updates = {{"parameter", "parameter"}, {"momentum", "momentum"}}});
}

namespace {

// Whole matrices; and k and v of [q | k | v], which share a state, next to a separate matrix.
const optim::MuonStackAttrs& whole_matrices() {
  static const optim::MuonStackAttrs kWhole{
      {{1, update_with(optim::Muon{}, 1)}, {0, update_with(optim::Muon{.nesterov = false})}, {}}};
  return kWhole;
}
const optim::MuonStackAttrs& rows_of_matrices() {
  static const optim::MuonStackAttrs kRows{{{0, update_rows(optim::Muon{}, 72, 24, 24, 48, 0.25)},
                                            {},
                                            {1, update_with(optim::Muon{}, 1)},
                                            {0, update_rows(optim::Muon{}, 48, 24, 0, 48)}}};
  return kRows;
}
optim::MuonStackAttrs timed_stack() {
  return {{{0, update_with(optim::Muon{}, 1)}}};
}
Operand timed_stacked(bool zero = true) {
  const Shape shape{1, timed_matrix().shape[0], timed_matrix().shape[1]};
  return zero ? zeros(shape) : f32(shape);
}

}  // namespace

template <>
void cases<optim::MuonMomentum>(Cases& to) {
  const Operand alone = f32({24, 20});
  to.add<optim::MuonMomentum>(
      "muon_momentum", {.momenta = {alone, alone}, .gradients = {alone, alone}, .scalars = update_scalars()},
      whole_matrices(), {.updates = {{"momenta", "momenta"}}});
  to.add<optim::MuonMomentum>(
      "muon_momentum_rows",
      {.momenta = {f32({48, 20}), alone}, .gradients = {f32({96, 20}), alone}, .scalars = update_scalars()},
      rows_of_matrices(), {.updates = {{"momenta", "momenta"}}, .ragged = true});
  to.time<optim::MuonMomentum>(
      {.momenta = {timed_state()}, .gradients = {timed_matrix()}, .scalars = timed_scalars()}, timed_stack(),
      {.updates = {{"momenta", "momenta"}}});
}

template <>
void cases<optim::NewtonSchulz>(Cases& to) {
  to.add<optim::NewtonSchulz>("newton_schulz_wide", {.x = f32({4, 12, 20})});
  to.add<optim::NewtonSchulz>("newton_schulz_tall", {.x = f32({2, 20, 12})});
  // Nothing but zeros in the second matrix.
  to.add<optim::NewtonSchulz>(
      "newton_schulz_of_nothing",
      {.x = f32_of({2, 8, 8}, [](int64_t i) { return i < 64 ? 0.01 * static_cast<double>(i % 7) : 0; })});
  to.time<optim::NewtonSchulz>({.x = timed_stacked(false)});
}

template <>
void cases<optim::MuonApply>(Cases& to) {
  const Operand alone = f32({24, 20});
  to.add<optim::MuonApply>(
      "muon_apply", {.parameters = {alone, alone}, .stack = f32({3, 24, 20}), .scalars = update_scalars()},
      whole_matrices(), {.updates = {{"parameters", "parameters"}}});
  to.add<optim::MuonApply>(
      "muon_apply_rows",
      {.parameters = {f32({96, 20}), alone}, .stack = f32({4, 24, 20}), .scalars = update_scalars()},
      rows_of_matrices(), {.updates = {{"parameters", "parameters"}}, .ragged = true});
  to.time<optim::MuonApply>(
      {.parameters = {timed_matrix()}, .stack = timed_stacked(), .scalars = timed_scalars()}, timed_stack(),
      {.updates = {{"parameters", "parameters"}}});
}

}  // namespace strata::device
