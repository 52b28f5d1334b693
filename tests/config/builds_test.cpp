// data.build: the sources of data builds in a training configuration.
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_config.h"
#include "fixtures/scratch_folder.h"

namespace strata::training {
namespace {

class BuildsTest : public testing::Test {
 protected:
  BuildsTest() {
    for (const char* folder : {"web", "code"}) std::filesystem::create_directory(scratch_ / folder);
    put_file(
        scratch_ / "web/sources.toml",
        "[tokenizer]\npath = \"tokenizer.json\"\nadd_bos = true\nadd_eos = true\n"
        "[[data.source]]\nname = \"crawl\"\npath = [\"tokens/crawl.bin\"]\nweight = 0.67\n"
        "[[data.source]]\nname = \"books\"\npath = [\"tokens/books.bin\"]\nweight = 0.33\nmax_epochs = 2\n");
    put_file(
        scratch_ / "code/sources.toml",
        "[tokenizer]\npath = \"tokenizer.json\"\n"
        "[[data.source]]\nname = \"code\"\npath = [\"tokens/code.ds\"]\nweight = 1.0\nmax_tokens = 5000\n");
    for (const char* folder : {"web", "code"})
      put_file(scratch_ / (std::string(folder) + "/tokenizer.json"), "the same");
  }
  std::string at(const std::string& name) const { return (scratch_ / name).string(); }
  config::RunConfig read(const std::string& data, const std::vector<std::string>& sets = {}) const {
    return config::parse_run_config("[model]\npreset = \"llama3-5m\"\n" + data, "run.toml", sets);
  }

  ScratchFolder scratch_;
};

TEST_F(BuildsTest, AddTheirSourcesAndTheirTokenizer) {
  const config::RunConfig config = read("[data]\nbuild = [\"" + at("web") + "\", \"" + at("code") + "\"]\n");
  EXPECT_TRUE(config::validate(config).empty());
  ASSERT_EQ(config.data.source.size(), 3u);
  EXPECT_EQ(config.data.source[0].name, "crawl");
  EXPECT_EQ(config.data.source[0].path, std::vector<std::string>{at("web/tokens/crawl.bin")});
  EXPECT_EQ(config.data.source[0].weight, 0.67);
  EXPECT_TRUE(config.data.source[0].max_epochs.is_word());
  EXPECT_EQ(config.data.source[1].max_epochs.value_or(0), 2);
  EXPECT_EQ(config.data.source[2].path, std::vector<std::string>{at("code/tokens/code.ds")});
  EXPECT_EQ(config.data.source[2].max_tokens, 5000);
  EXPECT_EQ(config.tokenizer.path, at("web/tokenizer.json"));
  EXPECT_TRUE(config.tokenizer.add_bos);
  EXPECT_EQ(config.origin_of("data.source.0.weight").file, at("web/sources.toml"));
  // The stored configuration describes the same run, without the build.
  const config::RunConfig stored =
      config::parse_run_config(config::resolved_toml(config, "here"), "run.toml");
  EXPECT_TRUE(config::compare_for_resume(stored, config).empty());
  EXPECT_EQ(config::resolved_toml(config, "here").find("\nbuild ="), std::string::npos);
}

TEST_F(BuildsTest, RowsOfTheirNamesAndSetsChangeThem) {
  const config::RunConfig config =
      read("[tokenizer]\npath = \"own.json\"\n[data]\nbuild = \"" + at("web") +
               "\"\n[[data.source]]\nname = \"books\"\nweight = 2.0\nmax_tokens = 100\n"
               "[[data.source]]\nname = \"own\"\npath = \"own/*.txt\"\n",
           {"data.source.0.weight=0.5"});
  EXPECT_TRUE(config::validate(config).empty());
  ASSERT_EQ(config.data.source.size(), 3u);
  EXPECT_EQ(config.data.source[0].weight, 0.5);
  EXPECT_EQ(config.data.source[1].weight, 2.0);
  EXPECT_EQ(config.data.source[1].max_epochs.value_or(0), 2);
  EXPECT_EQ(config.data.source[1].max_tokens, 100);
  EXPECT_EQ(config.data.source[1].path, std::vector<std::string>{at("web/tokens/books.bin")});
  EXPECT_EQ(config.data.source[2].name, "own");
  EXPECT_EQ(config.tokenizer.path, "own.json");
  const config::RunConfig by_set = read("", {"data.source.1.weight=9.0", "data.build=\"" + at("web") + "\""});
  EXPECT_EQ(by_set.data.source.at(1).weight, 9.0);
}

TEST_F(BuildsTest, NamesFoldersThatAreNotBuilds) {
  const auto refused = [&](const std::string& data, const std::string& part) {
    try {
      read(data);
      ADD_FAILURE() << data;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("[data]\nbuild = \"" + at("none") + "\"\n", "run.toml:4");
  put_file(scratch_ / "code/tokenizer.json", "another");
  refused("[data]\nbuild = [\"" + at("web") + "\", \"" + at("code") + "\"]\n", "two tokenizers");
  const auto issues = config::validate(read("[data]\nbuild = 3\n"));
  ASSERT_EQ(issues.size(), 1u);
  EXPECT_EQ(issues[0].key, "data.build");
  const auto both = config::validate(read("[data]\ntrain = \"a.txt\"\nbuild = \"" + at("web") + "\"\n"));
  ASSERT_EQ(both.size(), 1u);
  EXPECT_NE(both[0].problem.find("data.build"), std::string::npos);
}

}  // namespace
}  // namespace strata::training
