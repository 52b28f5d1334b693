// What a run does by itself when its loss or gradient goes wrong: rules, journal, snapshots, the way back.
#include "train/recovery.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "fixtures/tiny_program.h"
#include "fixtures/tiny_run.h"
#include "program/update.h"
#include "train/snapshots.h"

namespace strata::training {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A run's history in which every accepted step has these values.
optim::GuardHistory history_of(const std::vector<double>& losses) {
  optim::GuardHistory history;
  for (const double loss : losses) optim::decide({}, loss, 1, true, 0, history);
  return history;
}

Observed skipped(int64_t step, int64_t in_row, double loss = kNaN) {
  Observed seen{.step = step};
  seen.decision.loss = loss;
  seen.decision.nonfinite = std::isfinite(loss) ? 0 : 1;
  seen.decision.skip = 1;
  seen.history.skipped_in_row = in_row;
  return seen;
}

std::vector<std::string> actions_of(const Judgement& judged) {
  std::vector<std::string> actions;
  for (const Intervention& one : judged.interventions) actions.push_back(one.rule + ": " + one.action);
  if (judged.rollback)
    actions.push_back(judged.rollback->why.rule + ": " + judged.rollback->why.action +
                      (judged.rollback->older ? " older" : ""));
  return actions;
}

using Actions = std::vector<std::string>;

// The limits of recovery end a run that goes back again and again.
TEST(Journal, CountsEachRollbackForWrongBits) {
  Journal journal;
  const Intervention back{.at_step = 7, .rule = "corruption", .action = "rollback", .to_step = 5};
  EXPECT_TRUE(journal.add(back));
  EXPECT_TRUE(journal.add(back));
  EXPECT_EQ(journal.recent(7), 2);
}

TEST(Recovery, SkipsOnceAndGoesBackAfterThreeInARow) {
  const config::RecoveryTable keys;
  Recovery recovery(keys);
  Journal journal;
  EXPECT_EQ(actions_of(recovery.judge(skipped(60, 1), journal)), Actions{"nonfinite: skip_update"});
  EXPECT_EQ(actions_of(recovery.judge(skipped(61, 2), journal)), Actions{"nonfinite: skip_update"});
  const Judgement third = recovery.judge(skipped(62, 3), journal);
  EXPECT_EQ(actions_of(third), (Actions{"nonfinite: skip_update", "nonfinite: rollback_skip"}));
  EXPECT_TRUE(third.rollback->skips_data);
}

TEST(Recovery, DoesNotEndWithWeightsThatAreNotFinite) {
  const config::RecoveryTable keys;
  Observed last = skipped(300, 1);
  last.is_last = true;
  EXPECT_EQ(actions_of(Recovery(keys).judge(last, {})), Actions{"nonfinite: skip_update"})
      << "only the batch";
  last.has_finite_weights = false;
  EXPECT_EQ(actions_of(Recovery(keys).judge(last, {})),
            (Actions{"nonfinite: skip_update", "nonfinite: rollback_skip"}));
}

TEST(Recovery, GoesFurtherBackAndEasesTheRateIfItFailsAgain) {
  const config::RecoveryTable keys;  // snapshots every 50 steps, which is the delay
  Recovery recovery(keys);
  Journal journal;
  journal.add(Intervention{.at_step = 62, .rule = "nonfinite", .action = "rollback_skip", .to_step = 50});
  const Judgement again = recovery.judge(skipped(112, 3), journal);
  EXPECT_EQ(actions_of(again),
            (Actions{"nonfinite: skip_update", "nonfinite: ease_lr", "nonfinite: rollback_skip older"}));
  ASSERT_EQ(again.effects.size(), 1u);
  EXPECT_EQ(again.effects[0].factor, 0.5);
  EXPECT_EQ(again.effects[0].for_steps, 100);
  EXPECT_EQ(actions_of(recovery.judge(skipped(113, 3), journal)),
            (Actions{"nonfinite: skip_update", "nonfinite: rollback_skip"}))
      << "much later it is a new failure";
}

TEST(Recovery, GoesBackIfTheLossStaysHigh) {
  const config::RecoveryTable keys;
  Recovery recovery(keys);
  std::vector<double> losses(64, 2.0);
  losses.insert(losses.end(), 16, 2.4);
  Observed seen{.step = 80, .history = history_of(losses)};
  EXPECT_EQ(actions_of(recovery.judge(seen, {})), Actions{});
  losses.insert(losses.end(), 16, 2.6);
  seen.history = history_of(losses);
  EXPECT_EQ(actions_of(recovery.judge(seen, {})), Actions{"loss_high: rollback_skip"});
}

TEST(Recovery, WithoutRulesReportsOnlyAndEndsAtANonFiniteValue) {
  config::RecoveryTable keys;
  keys.rules = config::RecoveryRules::kNone;
  Recovery recovery(keys);
  const optim::GuardRules rules = recovery.guard_rules();
  for (int32_t i = 0; i < rules.count; ++i)
    EXPECT_EQ(rules.rules[static_cast<size_t>(i)].effect, optim::GuardRule::Effect::kReport);
  Observed spike{.step = 9};
  spike.decision.fired = 1;
  const Judgement judged = recovery.judge(spike, {});
  EXPECT_EQ(actions_of(judged), Actions{});
  ASSERT_EQ(judged.alerts.size(), 1u);
  EXPECT_EQ(judged.alerts[0].rule, "loss_spike");
  EXPECT_NE(recovery.judge(skipped(10, 1), {}).stop, "");
}

TEST(Recovery, EachActionOfTheUsersRules) {
  config::RecoveryTable keys;
  using When = config::RecoveryRule::When;
  using Action = config::RecoveryRule::Action;
  config::RecoveryRule& rule = keys.rule.emplace_back();
  rule.when = When::kLossSpike;
  const auto judge = [&](Action action, const Journal& journal = {}) {
    rule.action = action;
    Observed seen{.step = 30};
    seen.decision.fired = 1;
    seen.decision.loss = 9;
    return Recovery(keys).judge(seen, journal);
  };
  EXPECT_EQ(actions_of(judge(Action::kSkipUpdate)), Actions{"loss_spike: skip_update"});
  EXPECT_EQ(actions_of(judge(Action::kRollback)), Actions{"loss_spike: rollback"});
  EXPECT_FALSE(judge(Action::kRollback).rollback->skips_data);
  EXPECT_TRUE(judge(Action::kRollbackSkip).rollback->skips_data);
  const Judgement eased = judge(Action::kEaseLr);
  EXPECT_EQ(eased.effects.at(0).kind, Effect::Kind::kEaseLr);
  Journal journal;
  journal.add(eased.effects[0]);
  EXPECT_EQ(actions_of(judge(Action::kEaseLr, journal)), Actions{}) << "it is still in effect";
  EXPECT_EQ(judge(Action::kShrinkEmbedding).effects.at(0).factor, 0.1);
  EXPECT_EQ(judge(Action::kAlert).alerts.size(), 1u);
  EXPECT_EQ(judge(Action::kAlert).interventions.size(), 0u);
  EXPECT_NE(judge(Action::kStop).stop, "");
  EXPECT_NE(Recovery(keys).judge(skipped(31, 1), {}).stop, "") << "no rule is for nonfinite";
}

TEST(Recovery, HasLimits) {
  config::RecoveryTable keys;
  keys.max_interventions = 2;
  keys.max_lost_steps = 20;
  const Recovery recovery(keys);
  Journal journal;
  journal.add(Intervention{.at_step = 10, .rule = "nonfinite", .action = "skip_update"});
  EXPECT_EQ(recovery.limit_reached(journal, 11, 1, 0), "");
  EXPECT_NE(recovery.limit_reached(journal, 11, 2, 0).find("recovery.max_interventions = 2"),
            std::string::npos);
  EXPECT_EQ(recovery.limit_reached(journal, 1010, 2, 0), "") << "it was more than 1,000 steps ago";
  journal.undo_after(5, 20);
  EXPECT_EQ(recovery.limit_reached(journal, 11, 1, 5), "");
  EXPECT_NE(recovery.limit_reached(journal, 11, 1, 6).find("recovery.max_lost_steps = 20"),
            std::string::npos);
}

// Counters and the guard's history are device state, whatever the caller's state contains.
TEST(Snapshots, RestoreEverythingThatAStepReads) {
  program::TinyRun run(program::compile({program::tiny_request(2)}, program::tiny_options("llama3-5m")));
  for (int i = 0; i < 3; ++i) run.step();
  Snapshots snapshots(run.executor, 1);
  TrainingState third;
  third.step = 3;
  snapshots.take(third);
  const auto step = [&] {
    run.step();
    return std::pair(run.state(), run.executor.read_all<uint8_t>("guard_history"));
  };
  const auto wanted = step();
  run.step();
  snapshots.restore(3);
  run.executor.run(0, {program::Segment::kEncode});
  EXPECT_EQ(program::updates_made(run.executor), 3);
  EXPECT_TRUE(step() == wanted);
}

TEST(Journal, UndoesWhatRulesDidButNotWhatTheUserSet) {
  Journal journal;
  journal.add({.kind = Effect::Kind::kEaseLr, .step = 40, .factor = 0.5, .for_steps = 100});
  journal.add({.kind = Effect::Kind::kJump, .step = 60, .next_sample = 700});
  journal.add({.kind = Effect::Kind::kSet, .step = 70, .key = "optimizer.lr", .value = "0.1", .by = "me"});
  EXPECT_EQ(journal.factor(Effect::Kind::kEaseLr, 40), 1);
  EXPECT_EQ(journal.factor(Effect::Kind::kEaseLr, 41), 0.5);
  EXPECT_EQ(journal.factor(Effect::Kind::kEaseLr, 140), 0.5);
  EXPECT_EQ(journal.factor(Effect::Kind::kEaseLr, 141), 1);
  EXPECT_EQ(journal.jump_at(60), 700);
  journal.undo_after(50, 75);
  EXPECT_EQ(journal.jump_at(60), std::nullopt);
  EXPECT_EQ(journal.lost_steps(), 25);
  ASSERT_EQ(journal.effects().size(), 2u);
  EXPECT_EQ(journal.effects()[1].step, 50) << "the user's setting holds from there on";
  EXPECT_EQ(Journal::from_json(nlohmann::json::parse(journal.to_json().dump()), "test"), journal);
}

TEST(Journal, KnowsWhatARepeatedStepDid) {
  Journal journal;
  const Intervention one{.at_step = 5, .rule = "nonfinite", .action = "skip_update", .measured = kNaN};
  EXPECT_TRUE(journal.add(one));
  EXPECT_FALSE(journal.add(one));
  EXPECT_THROW(Journal::from_json(nlohmann::json::parse(R"({"effects": 3})"), "x"), DataError);
}

}  // namespace
}  // namespace strata::training
