#include "train/collapse_alarm.h"

#include <gtest/gtest.h>

#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

using observe::LayerTokens;

const std::vector<int64_t> kEven(16, 50);

// Two of sixteen experts get most tokens, `others` more get a few.
std::vector<int64_t> few(int64_t others) {
  std::vector<int64_t> tokens(16);
  tokens[3] = tokens[9] = 400;
  for (int64_t i = 0; i < others; ++i) tokens[static_cast<size_t>(i == 3 || i == 9 ? 15 - i : i)] = 10;
  return tokens;
}

// Steps until an alarm; 0: none.
int64_t steps_to_alarm(CollapseAlarm& alarm, const std::vector<LayerTokens>& layers, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    if (alarm.step(layers)) return step;
  }
  return 0;
}

TEST(CollapseAlarm, ReportsAnUnbalancedLayerOnce) {
  CollapseAlarm alarm(2);
  EXPECT_EQ(steps_to_alarm(alarm, {{0, kEven}, {4, kEven}}, 100), 0);
  for (int64_t step = 1; step < CollapseAlarm::kSteps; ++step)
    EXPECT_FALSE(alarm.step({{0, kEven}, {4, few(2)}}));
  const auto found = alarm.step({{0, kEven}, {4, few(2)}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->layers, std::vector<int64_t>{4});
  EXPECT_EQ(found->worst, 4);
  EXPECT_EQ(found->spread.dead, 12);
  EXPECT_LT(found->spread.in_use, 3);
  EXPECT_EQ(steps_to_alarm(alarm, {{0, kEven}, {4, few(2)}}, 100), 0) << "it was reported before";
  EXPECT_EQ(steps_to_alarm(alarm, {{0, few(0)}, {4, few(2)}}, 100), CollapseAlarm::kSteps) << "another layer";
}

TEST(CollapseAlarm, ABalancedStepRestartsTheCountAndARecoveryRearms) {
  CollapseAlarm alarm(2);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steps_to_alarm(alarm, {{0, few(0)}}, CollapseAlarm::kSteps - 1), 0);
    EXPECT_FALSE(alarm.step({{0, kEven}}));
  }
  EXPECT_EQ(steps_to_alarm(alarm, {{0, few(0)}}, 100), CollapseAlarm::kSteps);
  EXPECT_EQ(steps_to_alarm(alarm, {{0, kEven}}, CollapseAlarm::kSteps - 1), 0);
  EXPECT_EQ(steps_to_alarm(alarm, {{0, few(0)}}, 100), 0) << "it had not recovered";
  EXPECT_EQ(steps_to_alarm(alarm, {{0, kEven}}, CollapseAlarm::kSteps), 0);
  EXPECT_EQ(steps_to_alarm(alarm, {{0, few(0)}}, 100), CollapseAlarm::kSteps);
}

TEST(CollapseAlarm, HasTheDocumentedLimits) {
  const auto has_alarm = [](int64_t chosen, const std::vector<int64_t>& tokens) {
    CollapseAlarm alarm(chosen);
    return steps_to_alarm(alarm, {{0, tokens}}, 100) > 0;
  };
  // With sixteen experts and two per token, at least 5.5 must be in use.
  std::vector<int64_t> tokens(16, 1);
  for (int used = 4; used <= 7; ++used) {
    std::vector<int64_t> equal(16);
    for (int i = 0; i < 16; ++i) equal[static_cast<size_t>(i)] = i < used ? 1000 : 0;
    EXPECT_TRUE(has_alarm(2, equal)) << "at least nine of sixteen have no tokens";
    for (int64_t& count : equal) count = std::max<int64_t>(count, 1);
    EXPECT_EQ(has_alarm(2, equal), used <= 5) << used;
  }
  std::vector<int64_t> half(16);
  for (size_t i = 0; i < 8; ++i) half[i] = 1000;
  EXPECT_FALSE(has_alarm(2, half)) << "half have no tokens, and eight are in use";
  EXPECT_FALSE(has_alarm(16, kEven)) << "every token goes to all experts";
  tokens = few(0);
  for (int64_t& count : tokens) count = count * 127 / 800;
  EXPECT_FALSE(has_alarm(2, tokens)) << "too few tokens: fewer than eight per expert";
}

// A text of a single word, whose tokens look alike to a router.
TEST(CollapseAlarm, ARunReportsItOnceInItsMetricsAndOnItsPage) {
  const TinyRun tiny;
  const Sets model{"model.family='qwen3-moe'",
                   "model.override.num_experts=16",
                   "model.override.num_experts_per_tok=2",
                   "model.override.moe_intermediate_size=8",
                   "training.steps=45",
                   "checkpoint.interval='1000 steps'"};
  const auto events_of = [&](const char* run) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& event : metrics_of(tiny.folder(run)).events)
      if (event["event"] == "routing_collapse") found.push_back(event);
    return found;
  };
  tiny.train(model, "words");
  EXPECT_TRUE(events_of("words").empty());
  EXPECT_EQ(read_file(tiny.folder("words") / "index.html").find("routing has collapsed"), std::string::npos);
  put_tokens(tiny.path("same.bin"), std::vector<uint16_t>(6000, 5));
  testing::internal::CaptureStderr();
  tiny.train(model + Sets{"data.train=['" + tiny.path("same.bin").string() + "']"}, "same");
  const std::string terminal = testing::internal::GetCapturedStderr();
  const auto events = events_of("same");
  ASSERT_EQ(events.size(), 1U);
  const nlohmann::json& event = events.front();
  EXPECT_EQ(event["at_step"], CollapseAlarm::kSteps);
  EXPECT_EQ(event["layers"], "0, 1");
  EXPECT_NEAR(event["experts_in_use"].get<double>(), 2, 1e-9);
  EXPECT_EQ(event["experts"], 16);
  EXPECT_EQ(event["dead_experts"], 14);
  EXPECT_NEAR(event["max_vio"].get<double>(), 16.0 / 2 - 1, 1e-9);
  EXPECT_NE(
      terminal.find("warning: step 20: routing has collapsed in layers 0, 1: layer 0 uses 2.0 of 16 experts"),
      std::string::npos)
      << terminal;
  EXPECT_NE(read_file(tiny.folder("same") / "index.html").find("routing has collapsed"), std::string::npos);
}

}  // namespace
}  // namespace strata::training
