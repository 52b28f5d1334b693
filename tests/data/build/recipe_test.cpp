#include "data/build/recipe.h"

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

Recipe read(const TemporaryFolder& folder, const std::string& text,
            const std::vector<std::string>& sets = {}) {
  const Path path = folder.write("r/recipe.toml", text);
  return read_recipe(read_recipe_tree(path, sets), path);
}

TEST(Recipe, DefaultsAndPaths) {
  TemporaryFolder folder;
  const Recipe recipe = read(folder, "[[source]]\nname = \"web\"\npath = \"x/*.jsonl\"\n");
  EXPECT_EQ(recipe.folder, folder.path() / "r/out");
  EXPECT_EQ(recipe.sources[0].paths[0], (folder.path() / "r/x/*.jsonl").string());
  EXPECT_EQ(recipe.sources[0].records.text, "text");
  EXPECT_EQ(recipe.on_error, OnError::kSkip);
  EXPECT_TRUE(recipe.documents && recipe.audit && !recipe.tokens && recipe.stages.empty());
}

TEST(Recipe, StagesTakePublishedNamesAndDefaults) {
  TemporaryFolder folder;
  const Recipe recipe =
      read(folder,
           "[build]\nmemory_limit = \"2GiB\"\n[[source]]\nname = \"w\"\npath = [\"a\", \"-\"]\nweight = 2\n"
           "[[stage]]\nkind = \"gopher_quality\"\nmin_doc_words = 7\n[[stage]]\nkind = \"minhash\"\n",
           {"stage.0.max_avg_word_length=12", "build.workers=3"});
  EXPECT_EQ(recipe.memory_limit, int64_t{2} << 30);
  EXPECT_EQ(recipe.workers, 3);
  EXPECT_EQ(recipe.sources[0].weight, 2.0);
  EXPECT_EQ(recipe.sources[0].paths[1], "-");
  ASSERT_EQ(recipe.stages.size(), 2u);
  EXPECT_EQ(std::get<double>(recipe.stages[0].parameters.at("min_doc_words")), 7.0);
  EXPECT_EQ(std::get<int64_t>(recipe.stages[1].parameters.at("num_buckets")), 14);
}

TEST(Recipe, AllErrorsAreReportedTogether) {
  TemporaryFolder folder;
  expect_error(
      ErrorKind::kConfig,
      {"recipe.toml:2", "folde", "did you mean \"folder\"?", "gopher_qualty", "did you mean gopher_quality?",
       "no path", "num_bucket", "did you mean \"num_buckets\"?", "seed is \"x\"", "on_error", "stop"},
      [&] {
        read(folder,
             "[build]\nfolde = \"x\"\non_error = \"stopp\"\n[[source]]\nname = \"w\"\n[[stage]]\nkind = "
             "\"gopher_qualty\"\n[[stage]]\nkind = \"minhash\"\nnum_bucket = 3\nseed = \"x\"\n");
      });
  expect_error(ErrorKind::kConfig, {"names no [[source]]"}, [&] { read(folder, ""); });
  expect_error(ErrorKind::kConfig, {"two sources are called a"}, [&] {
    read(folder, "[[source]]\nname=\"a\"\npath=\"x\"\n[[source]]\nname=\"a\"\npath=\"y\"\n");
  });
}

TEST(Recipe, NamesOfSourcesAreFileNames) {
  TemporaryFolder folder;
  const std::vector<std::string> names = {"",        "../x",      "/",     "a/b",
                                          ".hidden", "a\\u0001b", "a\\nb", std::string(300, 'x')};
  for (const std::string& name : names) {
    expect_error(ErrorKind::kConfig, {"recipe.toml:", "file", "expected"},
                 [&] { read(folder, "[[source]]\nname = \"" + name + "\"\npath = \"x\"\n"); });
  }
}

TEST(Recipe, ExamplesAreValid) {
  int seen = 0;
  for (const auto& file : std::filesystem::directory_iterator(STRATA_TEST_DATA "/../../examples/data")) {
    if (file.path().extension() != ".toml") continue;
    EXPECT_FALSE(read_recipe(read_recipe_tree(file.path(), {}), file.path()).sources.empty());
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

TEST(Recipe, MemoryLimitIsASize) {
  TemporaryFolder folder;
  const auto limit = [&](const std::string& value) {
    return read(folder, "[build]\nmemory_limit = " + value + "\n[[source]]\nname=\"a\"\npath=\"x\"\n")
        .memory_limit;
  };
  EXPECT_EQ(limit("\"1kB\""), 1000);
  EXPECT_EQ(limit("\"1KiB\""), 1024);
  EXPECT_EQ(limit("77"), 77);
  EXPECT_EQ(limit("\"auto\""), 0);
  expect_error(ErrorKind::kConfig, {"memory_limit", "3 XB", "8GiB"}, [&] { limit("\"3 XB\""); });
}

}  // namespace
}  // namespace strata::data
