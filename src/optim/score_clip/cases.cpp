#include "optim/score_clip/score_clip.h"

#include <limits>

#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

namespace {

Operand decision_on(bool skips) {
  return bytes_of(optim::GuardDecision{.skip = skips}, optim::kDecisionBytes);
}
// Of two parts, each with the greatest of some heads; some are above 100, one is infinite.
Operand scores_of(int64_t heads) {
  return f32_of({2, heads}, [heads](int64_t i) {
    if (i == heads + 1) return std::numeric_limits<double>::infinity();
    return 37.0 * static_cast<double>(i * 7 % 11) - 60;
  });
}

}  // namespace

template <>
void cases<optim::ScoreFactors>(Cases& to) {
  using Share = optim::ScoreClip::Share;
  using Heads = optim::ScoreClip::Heads;
  struct Form {
    const char* name;
    optim::ScoreFactorsAttrs attrs;
    bool skips = false;
  };
  const std::vector<Heads> grouped{
      {8, {{3, Share::kQuery}}}, {2, {{3, Share::kKey}}}, {2, {{3, Share::kNothing}}}};
  const std::vector<Form> forms{
      {"_grouped", {100, 2, grouped}},
      {"_skipped", {100, 2, grouped}, true},
      {"_multi_head", {100, 8, {{8, {{2, Share::kQuery}}}, {8, {{2, Share::kKey}}}}}},
      {"_latent", {100, 8, {{8, {{2, Share::kQuery}, {3, Share::kAll}}}}}},
  };
  for (const Form& form : forms)
    to.add<optim::ScoreFactors>(std::string("score_factors") + form.name,
                                {.scores = scores_of(8), .decision = decision_on(form.skips)}, form.attrs,
                                {.replicated_only = true});
  to.untimed<optim::ScoreFactors>(kFewNumbers);
}

template <>
void cases<optim::ScaleRows>(Cases& to) {
  const auto factors = [](int64_t rows) {
    return f32_of({rows}, [](int64_t i) { return i % 3 == 0 ? 1.0 : 0.1 * static_cast<double>(i % 7 + 1); });
  };
  const CaseOptions<optim::ScaleRows> updates{.updates = {{"parameter", "parameter"}}};
  to.add<optim::ScaleRows>("scale_head_rows", {.parameter = f32({12, 20}), .factors = factors(12)}, {},
                           updates);
  to.add<optim::ScaleRows>("scale_head_rows_of_vector", {.parameter = f32({12}), .factors = factors(12)}, {},
                           updates);
  to.time<optim::ScaleRows>({.parameter = timed_matrix(), .factors = zeros({timed_matrix().shape[0]})}, {},
                            updates);
}

template <>
void cases<optim::ScoreSummary>(Cases& to) {
  for (const bool skips : {false, true}) {
    to.add<optim::ScoreSummary>(skips ? "score_summary_skipped" : "score_summary",
                                {.scores = {scores_of(8), scores_of(3)},
                                 .decision = decision_on(skips),
                                 .rank = rank_at({{graph::Axis::kPipeline, 1}})},
                                {.limit = 100, .stages = 2}, {.replicated_only = true});
  }
  to.untimed<optim::ScoreSummary>(kFewNumbers);
}

}  // namespace strata::device
