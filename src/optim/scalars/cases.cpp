#include "optim/case_operands.h"
#include "optim/scalars/scalars.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::SumOfSquares>(Cases& to) {
  to.add<optim::SumOfSquares>("sum_of_squares", {.x = f32({12, 20})});
  to.add<optim::SumOfSquares>("sum_of_squares_blocks", {.x = f32({2 * optim::kNormBlock + 3})}, {},
                              {.ragged = true});
  to.time<optim::SumOfSquares>({.x = timed_matrix()});
}

template <>
void cases<optim::SumOfPartials>(Cases& to) {
  to.add<optim::SumOfPartials>("sum_of_partials", {.partials = {partials(1), partials(4)}});
  to.untimed<optim::SumOfPartials>(kFewNumbers);
}

template <>
void cases<optim::RootOfSum>(Cases& to) {
  to.add<optim::RootOfSum>("root_of_sum", {.partials = {partials(1), partials(4)}}, {},
                           {.replicated_only = true});
  to.untimed<optim::RootOfSum>(kFewNumbers);
}

template <>
void cases<optim::StepScalars>(Cases& to) {
  struct Step {
    const char* name;
    double limit, count;
  };
  for (const Step& one :
       {Step{"", 0.0, 7.0}, Step{"_clipped", 0.1, 7.0}, Step{"_without_a_target", 1.0, 0.0}}) {
    const optim::UpdateHyper hyper{.max_grad_norm = one.limit, .lr = 0.01f};
    to.add<optim::StepScalars>(
        std::string("update_scalars") + one.name,
        {.hyper = bytes_of(hyper, optim::kHyperBytes),
         .token_count = i64_of(one.count),
         .loss_sum = partials(1),
         .updates = i64_of(4),
         .history = bytes_of(optim::GuardHistory{}, optim::kHistoryBytes),
         .partials = {partials(3), partials(1)}},
        {}, {.replicated_only = true, .opaque = {"scalars", "embedding_scalars", "history", "decision"}});
  }
  // The gradients of a loss times 2^10, which is in its last step before it doubles.
  optim::GuardHistory scaled;
  scaled.loss_scale = optim::first_loss_scale();
  scaled.loss_scale.scale = 1024;
  scaled.loss_scale.good_steps = optim::kLossScaleWindow - 1;
  to.add<optim::StepScalars>(
      "update_scalars_scaled",
      {.hyper = bytes_of(optim::UpdateHyper{.max_grad_norm = 0.1, .lr = 0.01f}, optim::kHyperBytes),
       .token_count = i64_of(7),
       .loss_sum = partials(1),
       .updates = i64_of(4),
       .history = bytes_of(scaled, optim::kHistoryBytes),
       .partials = {partials(3), partials(1)},
       .loss_scale = f32_of({1}, [](int64_t) { return 1024.0; })},
      {}, {.replicated_only = true, .opaque = {"scalars", "embedding_scalars", "history", "decision"}});
  to.untimed<optim::StepScalars>(kFewNumbers);
}

}  // namespace strata::device
