#include "data/build/part_plan.h"

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

Recipe recipe_of(const TemporaryFolder& folder, const std::vector<std::vector<std::string>>& sources) {
  Recipe recipe;
  recipe.base = folder.path();
  for (auto& patterns : sources) {
    RecipeSource source;
    source.name = "s" + std::to_string(recipe.sources.size());
    for (const std::string& pattern : patterns) source.paths.push_back((folder.path() / pattern).string());
    recipe.sources.push_back(std::move(source));
  }
  return recipe;
}

TEST(PartPlan, SplitsLargeFilesAndJoinsSmallOnes) {
  TemporaryFolder folder;
  folder.write("x/big.jsonl", std::string(2500, ' '));
  for (int i = 0; i < 5; ++i) folder.write("x/small" + std::to_string(i) + ".jsonl", std::string(300, ' '));
  folder.write("other.txt", std::string(5000, 'x'));
  const PartPlan plan = plan_parts(recipe_of(folder, {{"x/*.jsonl"}, {"other.txt"}}), 1000);
  ASSERT_EQ(plan.files.size(), 7u);
  EXPECT_EQ(plan.files[0].name, "x/big.jsonl");
  EXPECT_EQ(plan.bytes, 9000);
  ASSERT_EQ(plan.parts.size(), 6u);
  int64_t at = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(plan.parts[static_cast<size_t>(i)].pieces.size(), 1u);
    EXPECT_EQ(plan.parts[static_cast<size_t>(i)].pieces[0].range.begin, at);
    at = plan.parts[static_cast<size_t>(i)].pieces[0].range.end;
  }
  EXPECT_EQ(at, 2500);
  EXPECT_EQ(plan.parts[3].pieces.size(), 3u);
  EXPECT_EQ(plan.parts[4].pieces.size(), 2u);
  EXPECT_EQ(plan.parts[5].pieces.size(), 1u);  // a text is one document: never cut
  EXPECT_EQ(plan.parts[5].source, 1);
}

TEST(PartPlan, PartsHaveEightToSixtyFourMebibytes) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  TemporaryFolder folder;
  folder.write("big.jsonl", "{}");
  const auto parts_of = [&](int64_t mebibytes) {  // of a file with a hole
    std::filesystem::resize_file(folder.path() / "big.jsonl", static_cast<uintmax_t>(mebibytes * kMebibyte));
    return plan_parts(recipe_of(folder, {{"big.jsonl"}})).parts.size();
  };
  EXPECT_EQ(parts_of(7), 1u);
  EXPECT_EQ(parts_of(40), 5u);
  EXPECT_EQ(parts_of(1024), 64u);
  EXPECT_EQ(parts_of(64 * 100), 100u);
}

TEST(PartPlan, IdentityFollowsTheInput) {
  TemporaryFolder folder;
  folder.write("a.jsonl", "{}");
  const Recipe recipe = recipe_of(folder, {{"a.jsonl"}});
  const std::string before = plan_identity(plan_parts(recipe));
  EXPECT_EQ(plan_identity(plan_parts(recipe)), before);
  folder.write("a.jsonl", "{} ");
  EXPECT_NE(plan_identity(plan_parts(recipe)), before);
}

TEST(PartPlan, FileMatchedByTwoPatternsIsReadOnce) {
  TemporaryFolder folder;
  folder.write("a.jsonl", "{}");
  EXPECT_EQ(plan_parts(recipe_of(folder, {{"*.jsonl", "a.jsonl"}})).files.size(), 1u);
}

TEST(PartPlan, NamesAPatternWithoutFiles) {
  TemporaryFolder folder;
  expect_error(ErrorKind::kConfig, {"source s0", "nothing*.jsonl"},
               [&] { plan_parts(recipe_of(folder, {{"nothing*.jsonl"}})); });
}

}  // namespace
}  // namespace strata::data
