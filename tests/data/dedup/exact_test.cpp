// Exact duplicates against a map of texts.
#include <map>

#include "base/error.h"
#include "data/dedup/corpus.h"

namespace strata::data::dedup {
namespace {

std::vector<Outcome> first_of_each(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> first;
  std::vector<Outcome> outcomes(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    const auto [at, is_new] = first.emplace(texts[i], i);
    if (!is_new) outcomes[i] = {true, "exact_duplicate", static_cast<int64_t>(at->second)};
  }
  return outcomes;
}

TEST(ExactDedup, KeepsTheFirstOfEqualTexts) {
  Numbers numbers(1);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(random_words(numbers, numbers.below(4), 8));
  const auto expected = first_of_each(texts);
  const auto stage = make_stage("exact_dedup");
  for (const auto& parts : ways_to_cut(texts.size())) {
    for (const int64_t memory : {int64_t{1}, int64_t{20000}, int64_t{1} << 30}) {
      EXPECT_EQ(run_stage(*stage, texts, {parts, memory}), expected) << memory;
    }
  }
}

TEST(ExactDedup, ComparesSimplifiedTexts) {
  const std::vector<std::string> texts = {"Hello,  World 12", "hello world 3", "hello worlds", "...", "!!",
                                          "HELLO\nWORLD 4."};
  const auto outcomes =
      run_stage(*make_stage("exact_dedup", {{"compare", std::string("simplified")}}), texts);
  const Outcome copy{true, "exact_duplicate", 0}, kept{};
  EXPECT_EQ(outcomes, (std::vector<Outcome>{kept, copy, kept, kept, kept, copy}));
  EXPECT_EQ(run_stage(*make_stage("exact_dedup"), texts), std::vector<Outcome>(6));
  EXPECT_THROW(make_stage("exact_dedup", {{"compare", std::string("near")}}), ConfigError);
}

TEST(ExactDedup, EmptyInputAndOnlyDuplicates) {
  const auto stage = make_stage("exact_dedup");
  EXPECT_TRUE(run_stage(*stage, {}).empty());
  StageStats stats;
  const auto outcomes = run_stage(*stage, std::vector<std::string>(1000, "same"), {{1, 999}, 1}, &stats);
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.drop; }), 999);
  EXPECT_EQ(stats.counters().at("documents_with_copies"), 1);
}

}  // namespace
}  // namespace strata::data::dedup
