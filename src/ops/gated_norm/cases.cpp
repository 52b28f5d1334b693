#include "ops/gated_norm/gated_norm.h"

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

namespace {

struct GatedNormCase {
  std::string name;
  int64_t groups, width;
  bool gate_first;
  GateKind gate;
  bool shared;

  static constexpr int64_t kRows = 24;
  ops::GatedNormAttrs attrs() const {
    return {.group = width, .gate_first = gate_first, .gate = gate, .shared = shared};
  }
  Operand rows() const { return act({kRows, groups * width}); }
  Operand weight() const { return f32({shared ? width : groups * width}); }
  Operand rstd() const { return positive({kRows, groups}); }
  static Operand means() { return positive({kRows, 1}); }
  bool ragged() const { return width % 2 != 0; }
};
std::vector<GatedNormCase> forms_of_gated_norm() {
  const GateKind silu = GateKind::kSilu, sigmoid = GateKind::kSigmoid;
  return {{"", 4, 20, false, silu, true},        {"_sigmoid", 8, 12, false, sigmoid, true},
          {"_first", 4, 20, true, silu, false},  {"_first_sigmoid", 4, 12, true, sigmoid, true},
          {"_after", 4, 20, false, silu, false}, {"_one_group", 1, 64, true, silu, false},
          {"_ragged", 3, 23, false, silu, true}, {"_first_ragged", 3, 17, true, silu, false}};
}
// One group that ranks share.
const GatedNormCase kSharedGroup{"_over_ranks", 1, 64, true, GateKind::kSilu, false};
const GatedNormCase kSharedGroupAfter{"_after_over_ranks", 1, 64, false, GateKind::kSigmoid, false};

// As the value heads of a gated delta net.
constexpr int64_t kTimedNormWidth = 64, kTimedNormGroups = kTimedWidth / kTimedNormWidth;
const ops::GatedNormAttrs kTimedNorm{.group = kTimedNormWidth};
Operand timed_head() {
  return f32({kTimedNormWidth});
}
Operand timed_group_rstd() {
  return f32({kTimedTokens, kTimedNormGroups});
}

}  // namespace

template <>
void cases<ops::GatedNorm>(Cases& to) {
  for (const GatedNormCase& one : forms_of_gated_norm())
    to.add<ops::GatedNorm>("gated_norm" + one.name,
                           {.x = one.rows(), .gate = one.rows(), .weight = one.weight()}, one.attrs(),
                           {.ragged = one.ragged()});
  // Means over ranks, which no difference of these operands knows of.
  for (const GatedNormCase& one : {kSharedGroup, kSharedGroupAfter})
    to.add<ops::GatedNorm>(
        "gated_norm" + one.name,
        {.x = one.rows(), .gate = one.rows(), .weight = one.weight(), .means = one.means()}, one.attrs(),
        {.differentiable = std::vector<OutputName<ops::GatedNorm>>{}});
  to.time<ops::GatedNorm>({.x = timed_rows(), .gate = timed_rows(), .weight = timed_head()}, kTimedNorm);
}

template <>
void cases<ops::GatedNormGradInput>(Cases& to) {
  const auto with = [](const GatedNormCase& one, bool over_ranks) -> ops::GatedNormGradInput::In<Sample> {
    return {.dy = one.rows(),
            .x = one.rows(),
            .gate = one.rows(),
            .rstd = one.rstd(),
            .weight = one.weight(),
            .means = over_ranks ? one.means() : absent()};
  };
  for (const GatedNormCase& one : forms_of_gated_norm())
    to.add<ops::GatedNormGradInput>("gated_norm_grad_input" + one.name, with(one, false), one.attrs(),
                                    {.ragged = one.ragged()});
  for (const GatedNormCase& one : {kSharedGroup, kSharedGroupAfter})
    to.add<ops::GatedNormGradInput>("gated_norm_grad_input" + one.name, with(one, true), one.attrs());
  to.time<ops::GatedNormGradInput>({.dy = timed_rows(),
                                    .x = timed_rows(),
                                    .gate = timed_rows(),
                                    .rstd = timed_group_rstd(),
                                    .weight = timed_head()},
                                   kTimedNorm);
}

template <>
void cases<ops::GatedNormGradWeight>(Cases& to) {
  for (const GatedNormCase& one : forms_of_gated_norm())
    to.add<ops::GatedNormGradWeight>(
        "gated_norm_grad_weight" + one.name,
        {.dy = one.rows(), .x = one.rows(), .gate = one.rows(), .rstd = one.rstd()}, one.attrs(),
        {.ragged = one.ragged()});
  to.time<ops::GatedNormGradWeight>(
      {.dy = timed_rows(), .x = timed_rows(), .gate = timed_rows(), .rstd = timed_group_rstd()}, kTimedNorm);
}

template <>
void cases<ops::GatedMeans>(Cases& to) {
  for (const GatedNormCase& one : {kSharedGroup, kSharedGroupAfter}) {
    to.add<ops::GatedMeans>("gated_means" + one.name, {.x = one.rows(), .gate = one.rows()}, one.attrs());
    to.add<ops::GatedMeans>("gated_means_of_gradients" + one.name,
                            {.x = one.rows(), .gate = one.rows(), .dy = one.rows(), .weight = one.weight()},
                            one.attrs());
  }
  ops::GatedNormAttrs timed = kTimedNorm;
  timed.group = kTimedWidth;
  timed.shared = false;
  to.time<ops::GatedMeans>(
      {.x = timed_rows(), .gate = timed_rows(), .dy = timed_rows(), .weight = f32({kTimedWidth})}, timed);
}

}  // namespace strata::device
