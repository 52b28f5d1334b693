#include <gtest/gtest.h>

#include <algorithm>

#include "library/library_fixture.h"

namespace strata {
namespace {

using ConfigOfLibrary = Library;

TEST_F(ConfigOfLibrary, ReturnsValuesOfKeys) {
  const Config read = config("run");
  EXPECT_EQ(read.get("training.steps"), "6");
  EXPECT_EQ(read.get("data.valid_fraction"), "0.1");
  EXPECT_EQ(read.get("training.micro_batch_size"), "\"auto\"");
  EXPECT_EQ(read.get("model.preset"), read.get("model.from"));
  EXPECT_EQ(error_of([&] { (void)read.get("training.stepz"); }).kind(), ErrorKind::kConfig);
}

TEST_F(ConfigOfLibrary, SetsOverrideTheTextAndEarlierSets) {
  const Config read = config("run", {"training.steps=9"});
  EXPECT_EQ(read.get("training.steps"), "9");
  const Config more = read.with({"training.steps=11"});
  EXPECT_EQ(more.get("training.steps"), "11");
  EXPECT_EQ(read.get("training.steps"), "9");
}

TEST_F(ConfigOfLibrary, TomlReadsBackAsTheSame) {
  const Config read = config("run");
  EXPECT_EQ(Config::parse(read.toml()).toml(), read.toml());
}

TEST_F(ConfigOfLibrary, OneErrorListsAllMistakes) {
  const Error error = error_of([&] { config("run", {"training.stepz=1", "optimizer.lr=\"fast\""}); });
  EXPECT_EQ(error.kind(), ErrorKind::kConfig);
  EXPECT_TRUE(has(error.what(), "training.stepz")) << error.what();
  EXPECT_TRUE(has(error.what(), "did you mean \"steps\"")) << error.what();
  EXPECT_TRUE(has(error.what(), "optimizer.lr")) << error.what();
  EXPECT_EQ(exit_code(error.kind()), 2);
}

TEST_F(ConfigOfLibrary, ReadsFilesAndFoldersOfRuns) {
  put_file(folder("my.toml"), config("run").toml());
  EXPECT_EQ(Config::read(folder("my.toml").string()).get("training.steps"), "6");
  const std::string run = trained("trained", {"training.steps=2"});
  EXPECT_EQ(Config::read(run).get("training.steps"), "2");
  EXPECT_EQ(Config::read(run, {"training.steps=3"}).get("training.steps"), "3");
  EXPECT_EQ(error_of([&] { Config::read(scratch_.path().string()); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { Config::read(folder("absent.toml").string()); }).kind(), ErrorKind::kConfig);
}

TEST_F(ConfigOfLibrary, AFirstRunSuitsTheText) {
  const Config first = Config::for_texts({text_.string()}, {"training.steps=1"});
  EXPECT_EQ(first.get("model.preset"), "\"llama3-5m\"");
  EXPECT_EQ(first.get("training.steps"), "1");
  EXPECT_EQ(error_of([] { Config::for_texts({}); }).kind(), ErrorKind::kConfig);
}

}  // namespace
}  // namespace strata
