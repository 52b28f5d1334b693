#include <initializer_list>
#include <utility>

#include "ops/cases.h"
#include "ops/norm/norm.h"

namespace strata::device {

using namespace op_rows;

namespace {

const std::pair<std::string, ops::RmsNormAttrs> kRmsNorms[] = {{"rms_norm", {}},
                                                               {"rms_norm_offset", {.weight_offset = 1}}};

// Operands of the gradients: rows, a number of each, and one a column.
struct NormOperands {
  Operand rows, mean, rstd, weight;
  explicit NormOperands(const Sizes& s)
      : rows(act({s.rows, s.width})), mean(f32({s.rows})), rstd(positive({s.rows})), weight(f32({s.width})) {}
  NormOperands() : rows(timed_rows()), mean(f32({kTimedTokens})), rstd(mean), weight(f32({kTimedWidth})) {}
};

// Rows that are too wide for the registers of a GPU's block.
constexpr int64_t kWideRows = 2, kWideRow = 16392;
const Sizes kWide{"_wide", kWideRows, kWideRow, 0, true};
template <typename Op>
CaseOptions<Op> undifferenced() {
  return {.ragged = true, .differentiable = std::vector<OutputName<Op>>{}};
}

}  // namespace

template <>
void cases<ops::RmsNorm>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width}), weight = f32({s.width});
    for (const auto& [name, attrs] : kRmsNorms) {
      to.add<ops::RmsNorm>(name + s.name, {.x = x, .weight = weight}, attrs, {.ragged = s.ragged});
      to.add<ops::RmsNorm>(name + "_residual" + s.name, {.x = x, .weight = weight, .residual = x}, attrs,
                           {.ragged = s.ragged, .differentiable = {{"y", "h"}}});
    }
  }
  const Operand wide = act({kWideRows, kWideRow});
  to.add<ops::RmsNorm>("rms_norm_wide", {.x = wide, .weight = f32({kWideRow}), .residual = wide}, {},
                       undifferenced<ops::RmsNorm>());
  to.time<ops::RmsNorm>({.x = timed_rows(), .weight = f32({kTimedWidth}), .residual = timed_rows()});
}

template <>
void cases<ops::RmsNormGradInput>(Cases& to) {
  const auto with = [](const NormOperands& of, bool more) -> ops::RmsNormGradInput::In<Sample> {
    return {
        .dy = of.rows, .h = of.rows, .rstd = of.rstd, .weight = of.weight, .dh = more ? of.rows : absent()};
  };
  for (const Sizes& s : Cases::sizes()) {
    for (const auto& [name, attrs] : kRmsNorms)
      to.add<ops::RmsNormGradInput>(name + "_grad_input" + s.name, with(NormOperands(s), true), attrs,
                                    {.ragged = s.ragged});
    to.add<ops::RmsNormGradInput>("rms_norm_grad_input_alone" + s.name, with(NormOperands(s), false), {},
                                  {.ragged = s.ragged});
  }
  to.add<ops::RmsNormGradInput>("rms_norm_grad_input_wide", with(NormOperands(kWide), true), {},
                                undifferenced<ops::RmsNormGradInput>());
  to.time<ops::RmsNormGradInput>(with(NormOperands(), true));
}

template <>
void cases<ops::RmsNormGradWeight>(Cases& to) {
  const auto with = [](const NormOperands& of) -> ops::RmsNormGradWeight::In<Sample> {
    return {.dy = of.rows, .h = of.rows, .rstd = of.rstd};
  };
  for (const Sizes& s : Cases::sizes())
    to.add<ops::RmsNormGradWeight>("rms_norm_grad_weight" + s.name, with(NormOperands(s)), {},
                                   {.ragged = s.ragged});
  to.add<ops::RmsNormGradWeight>("rms_norm_grad_weight_wide", with(NormOperands(kWide)), {},
                                 undifferenced<ops::RmsNormGradWeight>());
  to.time<ops::RmsNormGradWeight>(with(NormOperands()));
}

template <>
void cases<ops::LayerNorm>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width}), vector = f32({s.width});
    to.add<ops::LayerNorm>("layer_norm" + s.name, {.x = x, .weight = vector, .bias = vector}, {},
                           {.ragged = s.ragged});
    to.add<ops::LayerNorm>("layer_norm_residual" + s.name,
                           {.x = x, .weight = vector, .bias = vector, .residual = x}, {},
                           {.ragged = s.ragged, .differentiable = {{"y", "h"}}});
  }
  const Operand wide = act({kWideRows, kWideRow}), of_wide = f32({kWideRow});
  to.add<ops::LayerNorm>("layer_norm_wide", {.x = wide, .weight = of_wide, .bias = of_wide, .residual = wide},
                         {}, undifferenced<ops::LayerNorm>());
  const Operand vector = f32({kTimedWidth});
  to.time<ops::LayerNorm>({.x = timed_rows(), .weight = vector, .bias = vector, .residual = timed_rows()});
}

template <>
void cases<ops::LayerNormGradInput>(Cases& to) {
  const auto with = [](const NormOperands& of, bool more) -> ops::LayerNormGradInput::In<Sample> {
    return {.dy = of.rows,
            .h = of.rows,
            .mean = of.mean,
            .rstd = of.rstd,
            .weight = of.weight,
            .dh = more ? of.rows : absent()};
  };
  for (const Sizes& s : Cases::sizes()) {
    to.add<ops::LayerNormGradInput>("layer_norm_grad_input" + s.name, with(NormOperands(s), true), {},
                                    {.ragged = s.ragged});
    to.add<ops::LayerNormGradInput>("layer_norm_grad_input_alone" + s.name, with(NormOperands(s), false), {},
                                    {.ragged = s.ragged});
  }
  to.add<ops::LayerNormGradInput>("layer_norm_grad_input_wide", with(NormOperands(kWide), true), {},
                                  undifferenced<ops::LayerNormGradInput>());
  to.time<ops::LayerNormGradInput>(with(NormOperands(), true));
}

template <>
void cases<ops::LayerNormGradWeight>(Cases& to) {
  const auto with = [](const NormOperands& of) -> ops::LayerNormGradWeight::In<Sample> {
    return {.dy = of.rows, .h = of.rows, .mean = of.mean, .rstd = of.rstd};
  };
  for (const Sizes& s : Cases::sizes())
    to.add<ops::LayerNormGradWeight>("layer_norm_grad_weight" + s.name, with(NormOperands(s)), {},
                                     {.ragged = s.ragged});
  to.add<ops::LayerNormGradWeight>("layer_norm_grad_weight_wide", with(NormOperands(kWide)), {},
                                   undifferenced<ops::LayerNormGradWeight>());
  to.time<ops::LayerNormGradWeight>(with(NormOperands()));
}

}  // namespace strata::device
