#include "ops/cases.h"
#include "ops/quantize/quantize.h"

namespace strata::device {

using namespace op_rows;
using quantize::Format;
using quantize::ScaleRule;

namespace {

struct RuleCase {
  std::string name;
  std::optional<ScaleRule> rows, columns;
  // Of a matrix that a cut in four leaves whole blocks in, and of one that no block divides.
  int64_t size, ragged_rows, ragged_columns;
};

std::vector<RuleCase> rule_cases() {
  const ScaleRule block = ScaleRule::block_row(Format::kE4M3), mx = ScaleRule::mx(Format::kE4M3);
  return {
      {"tensor", ScaleRule::tensor(Format::kE5M2), std::nullopt, 16, 5, 7},
      {"delayed", ScaleRule::delayed(Format::kE4M3), std::nullopt, 16, 5, 7},
      {"row", ScaleRule::row(Format::kE4M3), ScaleRule::row(Format::kE4M3), 16, 5, 7},
      {"block", block, block, 512, 130, 133},
      {"square", ScaleRule::block_square(Format::kE4M3), std::nullopt, 512, 130, 133},
      {"columns", std::nullopt, block, 512, 130, 133},
      {"mx", mx, mx, 128, 33, 37},
      {"mx4", ScaleRule::mx(Format::kE2M1), std::nullopt, 128, 33, 38},
      {"nvfp4", ScaleRule::nvfp4_row(), ScaleRule::nvfp4_row(), 64, 18, 22},
      {"nvfp4_by_row", ScaleRule::nvfp4_by_row(), ScaleRule::nvfp4_by_row(), 64, 18, 22},
      {"nvfp4_square", ScaleRule::nvfp4_square(), std::nullopt, 64, 18, 22},
  };
}

OptionalOperand greatest_for(const std::optional<ScaleRule>& rule, int64_t rows) {
  if (!rule || rule->needs() == ScaleRule::Needs::kNothing) return {};
  if (rule->is_delayed()) return positive({1, 5});
  return positive({1, rule->needs() == ScaleRule::Needs::kRows ? rows : 1});
}

}  // namespace

template <>
void cases<ops::Quantize>(Cases& to) {
  for (const RuleCase& one : rule_cases()) {
    for (const bool ragged : {false, true}) {
      const int64_t rows = ragged ? one.ragged_rows : one.size,
                    columns = ragged ? one.ragged_columns : one.size;
      to.add<ops::Quantize>("quantize_" + one.name + (ragged ? "_ragged" : ""),
                            {.x = act({rows, columns}),
                             .row_greatest = greatest_for(one.rows, rows),
                             .column_greatest = greatest_for(one.columns, columns)},
                            {.along_rows = one.rows, .along_columns = one.columns}, {.ragged = ragged});
    }
  }
  // The greatest magnitudes of ranks are neither shards nor terms of a sum.
  const ScaleRule delayed = ScaleRule::delayed(Format::kE5M2);
  to.add<ops::Quantize>(
      "quantize_delayed_and_greatest", {.x = act({130, 133}), .row_greatest = greatest_for(delayed, 130)},
      {.along_rows = delayed, .greatest_parts = 1}, {.replicated_only = true, .ragged = true});
  // As gradients of nvfp4 are.
  for (const bool ragged : {false, true}) {
    const int64_t rows = ragged ? 18 : 64, columns = ragged ? 22 : 64;
    Operand places = i32(2 * rows, 1000);
    places.shape = {rows, 2};
    const ScaleRule rule = ScaleRule::nvfp4_row();
    to.add<ops::Quantize>(std::string("quantize_stochastic") + (ragged ? "_ragged" : ""),
                          {.x = act({rows, columns}),
                           .row_greatest = greatest_for(rule, rows),
                           .column_greatest = greatest_for(rule, columns),
                           .places = places},
                          {.along_rows = rule,
                           .along_columns = rule,
                           .transforms_columns = true,
                           .stochastic = true,
                           .stream = 3},
                          {.ragged = ragged});
  }
  // As the second of two ranks that cut two parts of the columns.
  Operand places = i32(2 * 32, 1000);
  places.shape = {32, 2};
  to.add<ops::Quantize>("quantize_stochastic_on_a_rank",
                        {.x = act({32, 64}, {16, 48}),
                         .row_greatest = positive({1, 1}),
                         .column_greatest = positive({1, 1}),
                         .places = places,
                         .rank = rank_at({{Axis::kTensor, 1}})},
                        {.along_rows = ScaleRule::nvfp4_row(),
                         .along_columns = ScaleRule::nvfp4_row(),
                         .stochastic = true,
                         .stream = 3,
                         .columns = graph::Cut{.parts = {32, 96}, .ranks = 2}},
                        {.replicated_only = true});
  const ScaleRule block = ScaleRule::block_row(Format::kE4M3);
  to.time<ops::Quantize>({.x = timed_rows()}, {.along_rows = block, .along_columns = block});
  to.time<ops::Quantize>({.x = f32({kTimedFfn, kTimedWidth})},
                         {.along_rows = ScaleRule::block_square(Format::kE4M3)});
}

template <>
void cases<ops::GreatestMagnitudes>(Cases& to) {
  for (const RuleCase& one : rule_cases()) {
    const auto needs = [](const std::optional<ScaleRule>& rule) {
      return rule && rule->needs() != ScaleRule::Needs::kNothing;
    };
    if (!needs(one.rows)) continue;
    // Ranks have parts of the maximum, which are neither shards nor terms of a sum.
    to.add<ops::GreatestMagnitudes>(
        "greatest_magnitudes_" + one.name, {.x = act({one.ragged_rows, one.ragged_columns})},
        {.along_rows = one.rows, .along_columns = one.columns}, {.replicated_only = true, .ragged = true});
  }
  to.untimed<ops::GreatestMagnitudes>(kPass);
}

template <>
void cases<ops::GreatestOfRanks>(Cases& to) {
  to.add<ops::GreatestOfRanks>("greatest_of_ranks", {.found = positive({4, 6})});
  to.untimed<ops::GreatestOfRanks>(kFewNumbers);
}

}  // namespace strata::device
