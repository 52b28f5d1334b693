#include "ops/cases.h"
#include "ops/gated_norm/gated_norm.h"

namespace strata::device {

using namespace op_rows;

namespace {

struct GatedNormCase {
  std::string name;
  int64_t rows, width, group, weights;
  bool gate_first;
  GateKind kind;

  Operand x() const { return act({rows, width}); }
  Operand weight() const { return f32({weights}); }
  Operand rstd() const { return positive({rows, width / group}); }
  ops::GatedNormAttrs attrs() const {
    return {.eps = 1e-5, .group = group, .gate_first = gate_first, .kind = kind};
  }
  bool ragged() const { return rows % 2 != 0; }
};
const GatedNormCase kGatedNormCases[] = {
    {"_by_head", 6, 32, 8, 8, false, GateKind::kSilu},
    {"_sigmoid", 5, 42, 14, 14, false, GateKind::kSigmoid},
    {"_groups", 6, 48, 12, 48, true, GateKind::kSilu},
    {"_one_group", 5, 23, 23, 23, true, GateKind::kSilu},
    {"_norm_first", 4, 32, 8, 32, false, GateKind::kSilu},
};
constexpr int64_t kTimedGroup = 128;

// Where ranks share the channels of a group.
const GatedNormCase kOverRanks[] = {{"_over_ranks", 6, 16, 16, 16, true, GateKind::kSilu},
                                    {"_norm_first_over_ranks", 6, 16, 16, 16, false, GateKind::kSigmoid}};
Operand means_of(const GatedNormCase& one) {
  return positive({one.rows, 1});
}

}  // namespace

template <>
void cases<ops::GatedNorm>(Cases& to) {
  for (const GatedNormCase& one : kGatedNormCases)
    to.add<ops::GatedNorm>("gated_norm" + one.name, {.x = one.x(), .gate = one.x(), .weight = one.weight()},
                           one.attrs(), {.ragged = one.ragged()});
  for (const GatedNormCase& one : kOverRanks) {
    to.add<ops::GatedNorm>("gated_norm" + one.name,
                           {.x = one.x(), .gate = one.x(), .weight = one.weight(), .means = means_of(one)},
                           one.attrs(), {.differentiable = std::vector<OutputName<ops::GatedNorm>>{}});
  }
  to.time<ops::GatedNorm>({.x = timed_rows(), .gate = timed_rows(), .weight = f32({kTimedGroup})},
                          {.group = kTimedGroup});
}

template <>
void cases<ops::GatedNormGradInput>(Cases& to) {
  for (const GatedNormCase& one : kGatedNormCases) {
    to.add<ops::GatedNormGradInput>(
        "gated_norm_grad_input" + one.name,
        {.dy = one.x(), .x = one.x(), .gate = one.x(), .weight = one.weight(), .rstd = one.rstd()},
        one.attrs(), {.ragged = one.ragged()});
  }
  for (const GatedNormCase& one : kOverRanks) {
    to.add<ops::GatedNormGradInput>("gated_norm_grad_input" + one.name,
                                    {.dy = one.x(),
                                     .x = one.x(),
                                     .gate = one.x(),
                                     .weight = one.weight(),
                                     .rstd = one.rstd(),
                                     .means = means_of(one)},
                                    one.attrs());
  }
  to.time<ops::GatedNormGradInput>({.dy = timed_rows(),
                                    .x = timed_rows(),
                                    .gate = timed_rows(),
                                    .weight = f32({kTimedGroup}),
                                    .rstd = positive({kTimedTokens, kTimedWidth / kTimedGroup})},
                                   {.group = kTimedGroup});
}

template <>
void cases<ops::GatedNormGradWeight>(Cases& to) {
  for (const GatedNormCase& one : kGatedNormCases) {
    to.add<ops::GatedNormGradWeight>("gated_norm_grad_weight" + one.name,
                                     {.dy = one.x(), .x = one.x(), .gate = one.x(), .rstd = one.rstd()},
                                     {one.attrs(), one.weights < one.width}, {.ragged = one.ragged()});
  }
  to.time<ops::GatedNormGradWeight>({.dy = timed_rows(),
                                     .x = timed_rows(),
                                     .gate = timed_rows(),
                                     .rstd = positive({kTimedTokens, kTimedWidth / kTimedGroup})},
                                    {{.group = kTimedGroup}, true});
}

template <>
void cases<ops::GatedMeans>(Cases& to) {
  for (const GatedNormCase& one : kOverRanks) {
    to.add<ops::GatedMeans>("gated_means" + one.name, {.x = one.x(), .gate = one.x()}, one.attrs(),
                            {.differentiable = std::vector<OutputName<ops::GatedMeans>>{}});
    to.add<ops::GatedMeans>("gated_means_of_gradient" + one.name,
                            {.x = one.x(), .gate = one.x(), .dy = one.x(), .weight = one.weight()},
                            one.attrs(), {.differentiable = std::vector<OutputName<ops::GatedMeans>>{}});
  }
  to.time<ops::GatedMeans>({.x = timed_rows(), .gate = timed_rows()}, {.group = kTimedWidth});
}

}  // namespace strata::device
