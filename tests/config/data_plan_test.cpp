#include "config/data_plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace strata::training {
namespace {

data::TokenCorpus corpus_of(const std::string& name, int64_t tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  auto file = std::make_shared<const data::TokenFile>(name, std::move(ids), data::TokenFileOptions{});
  return data::TokenCorpus({{std::move(file), 0, tokens}});
}

TEST(DataPlan, SharesEpochsAndWarnings) {
  config::RunData data;
  data.sources.push_back({"web", corpus_of("web", 8001), 3, 0, 0});
  data.sources.push_back({"math", corpus_of("math", 161), 1, 0, 0});
  data.sources.push_back({"rare", corpus_of("rare", 81), 1, 4, 0});
  const data::SampleSource source(data.sources, {.sequence_length = 8, .seed = 1});
  const auto plan = config::plan_sources(data, source, 400);
  ASSERT_EQ(plan.size(), 3u);
  // The weights are 3 : 1 : 1 until the 40 samples of rare are used up, then 3 : 1.
  EXPECT_NEAR(plan[0].share, (120 + 150) / 400.0, 0.01);
  EXPECT_NEAR(plan[1].epochs, (40 + 50) / 20.0, 0.1);
  EXPECT_EQ(plan[2].epochs, 4.0);
  EXPECT_EQ(plan[2].share, 0.1);
  EXPECT_NEAR(plan[0].share + plan[1].share + plan[2].share, 1, 1e-12);
  const std::string text = config::to_string(plan);
  EXPECT_NE(text.find("rare 10.0 % of the tokens, 4 epochs"), std::string::npos) << text;
  // Exactly four is not above four.
  const auto warnings = config::repetition_warnings(plan);
  ASSERT_EQ(warnings.size(), 1u);
  for (const char* part : {"math", "161 tokens", "will be read 4.", "Muennighoff"})
    EXPECT_NE(warnings[0].find(part), std::string::npos) << warnings[0];
  EXPECT_TRUE(config::repetition_warnings(config::plan_sources(data, source, 50)).empty());
  EXPECT_EQ(config::to_string({{"one", 100, 1, 1.25}}), "1.25 epochs");
}

}  // namespace
}  // namespace strata::training
