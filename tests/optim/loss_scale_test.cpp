// The scale of fp16's loss: its rule against a table written from Megatron-LM's, and the update that takes it
// out.
#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/guard.h"
#include "update_run.h"

namespace strata::optim {
namespace {

constexpr float kOverflow = std::numeric_limits<float>::infinity();

// By hand from DynamicGradScaler.update() with growth_interval 1000, hysteresis 2, factors 2 and 0.5 and
// min_scale 1: after `steps` steps of a kind the scale, the steps since the last bad one or growth
// (_growth_tracker), and the rest of the hysteresis (_hysteresis_tracker).
TEST(LossScale, FollowsTheTableOfTheRule) {
  struct Row {
    int steps;
    bool overflowed;
    float scale;
    int32_t good_steps, patience;
  };
  LossScale state = first_loss_scale();
  EXPECT_EQ(state.scale, 65536);
  for (const Row& row : {
           Row{1, true, 65536, 0, 1},       // the first bad step only uses up patience
           Row{500, false, 65536, 500, 1},  // good steps do not give it back
           Row{1, true, 32768, 0, 0},       // the second halves
           Row{1, true, 16384, 0, -1},      // and so does each that follows
           Row{999, false, 16384, 999, -1},
           Row{1, true, 8192, 0, -2},  // one step before the window was full
           Row{1000, false, 16384, 0, 2},
           Row{1, true, 16384, 0, 1},
           Row{1000, false, 32768, 0, 2},
           Row{2000, false, 131072, 0, 2},
           Row{18, true, 1, 0, -16},
           Row{5, true, 1, 0, -21},  // the least
           Row{1000, false, 2, 0, 2},
       }) {
    for (int i = 0; i < row.steps; ++i) follow_step(state, row.overflowed);
    SCOPED_TRACE(testing::Message() << row.steps << (row.overflowed ? " bad" : " good"));
    EXPECT_EQ(state.scale, row.scale);
    EXPECT_EQ(state.good_steps, row.good_steps);
    EXPECT_EQ(state.patience, row.patience);
  }
}

TEST(LossScale, StaysWhereItIsFixedAndFinite) {
  LossScale fixed = fixed_loss_scale(256);
  for (const bool overflowed : {true, true, true, false}) follow_step(fixed, overflowed);
  EXPECT_EQ(fixed.scale, 256);
  LossScale large = first_loss_scale();
  for (int i = 0; i < 200 * kLossScaleWindow; ++i) follow_step(large, false);
  EXPECT_EQ(large.scale, kMostLossScale);
}

// The guard does not judge a step that overflows: nothing counts towards a rollback.
TEST(LossScale, HidesOverflowsFromTheGuard) {
  GuardHistory history;
  history.loss_scale = first_loss_scale();
  const auto decide = [&](double loss, double norm, bool has_targets = true) {
    return decide_scaled({}, loss, norm, has_targets, 1, history);
  };
  EXPECT_EQ(decide(2, 3).skip, 0);
  EXPECT_EQ(history.accepted, 1);
  for (const double norm : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const GuardDecision bad = decide(norm, norm);
    EXPECT_EQ(bad.skip, 1);
    EXPECT_EQ(bad.overflowed, 1);
    EXPECT_EQ(bad.nonfinite, 0);
    EXPECT_EQ(bad.loss_scale, 65536);
  }
  EXPECT_EQ(history.accepted, 1);
  EXPECT_EQ(history.skipped_in_row, 0);
  EXPECT_EQ(history.loss_scale.scale, 32768);
  // A loss that is not finite, of finite gradients, is one; a step without targets is neither good nor bad.
  EXPECT_EQ(decide(std::nan(""), 3).nonfinite, 1);
  EXPECT_EQ(history.skipped_in_row, 1);
  const LossScale before = history.loss_scale;
  EXPECT_EQ(decide(0, 0, false).no_targets, 1);
  EXPECT_EQ(history.loss_scale.good_steps, before.good_steps);
  // A scale that does not adapt leaves the decision to the guard.
  history.loss_scale = fixed_loss_scale(16);
  const GuardDecision fixed = decide(2, std::nan(""));
  EXPECT_EQ(fixed.overflowed, 0);
  EXPECT_EQ(fixed.nonfinite, 2);
}

RuleOf rule() {
  return [](const std::string&, graph::ParameterRole) { return one_rule({.weight_decay = 0.1}); };
}

// Powers of two change no bit, whatever the norm is clipped to.
TEST(LossScale, IsTakenOutBeforeAnythingReadsGradients) {
  constexpr int64_t kSize = 96;
  UpdateRun plain({{"w", {kSize}}}, rule()), scaled({{"w", {kSize}}}, rule(), 4096);
  for (UpdateRun* run : {&plain, &scaled}) {
    for (int64_t i = 0; i < kSize; ++i) run->values("w")[i] = number(1, static_cast<uint64_t>(i));
  }
  for (uint64_t step = 0; step < 5; ++step) {
    for (int64_t i = 0; i < kSize; ++i) {
      const float gradient = number(7 + step, static_cast<uint64_t>(i));
      plain.gradient("w")[i] = gradient;
      scaled.gradient("w")[i] = gradient * 4096;
    }
    plain.step(1e-2, 0.5);
    scaled.step(1e-2, 0.5);
    EXPECT_EQ(*scaled.values("grad_norm"), *plain.values("grad_norm"));
    EXPECT_TRUE(scaled.bits() == plain.bits()) << "step " << step;
  }
  EXPECT_EQ(*scaled.values("loss_scale"), 4096);
}

TEST(LossScale, SkipsAndHalvesOnTheDevice) {
  UpdateRun run({{"w", {8}}}, rule(), 64);
  for (int64_t i = 0; i < 8; ++i) run.values("w")[i] = 1;
  const auto step = [&](float gradient) {
    std::fill_n(run.gradient("w"), 8, gradient);
    const std::string before = run.bits();
    run.step(1e-2);
    return run.bits() == before;
  };
  EXPECT_FALSE(step(64));
  EXPECT_TRUE(step(kOverflow)) << "weights or states changed in a step that overflowed";
  EXPECT_EQ(*run.values("loss_scale"), 64);
  EXPECT_TRUE(step(std::nanf("")));
  EXPECT_EQ(*run.values("loss_scale"), 32);
  EXPECT_EQ(*run.at<int64_t>("updates"), 1);
  for (int i = 0; i < kLossScaleWindow; ++i) step(32);
  EXPECT_EQ(*run.values("loss_scale"), 64);
  EXPECT_EQ(*run.at<int64_t>("updates"), 1 + kLossScaleWindow);
}

}  // namespace
}  // namespace strata::optim
