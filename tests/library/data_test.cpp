#include <gtest/gtest.h>

#include "library/library_fixture.h"

namespace strata {
namespace {

class Build : public Library {
 protected:
  Build() {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "{\"text\": \"Document number " + std::to_string(i % 30) + ".\"}\n";
    put_file(folder("docs.jsonl"), lines);
  }

  std::string recipe(const std::string& rest = "") const {
    const Path path = folder("recipe.toml");
    put_file(path, "[build]\nfolder = " + quoted(folder("data")) + "\n[[source]]\nname = \"a\"\npath = [" +
                       quoted(folder("docs.jsonl")) + "]\n[[stage]]\nkind = \"exact_dedup\"\n" + rest);
    return path.string();
  }
};

TEST_F(Build, ReportsWhatItKept) {
  std::vector<std::string> phases;
  const BuildReport report = build_data(recipe(), {.progress = [&](const BuildProgress& progress) {
                                          if (progress.finished) phases.push_back(progress.phase);
                                        }});
  EXPECT_TRUE(report.finished);
  EXPECT_FALSE(report.reused);
  EXPECT_EQ(report.folder, folder("data").string());
  EXPECT_EQ(report.documents_read, 40);
  EXPECT_EQ(report.documents_kept, 30);
  EXPECT_FALSE(phases.empty());
  EXPECT_TRUE(has(report.json, "\"documents"));
  EXPECT_TRUE(build_data(recipe()).reused);
}

TEST_F(Build, StopsAndResumes) {
  const BuildReport stopped = build_data(recipe(), {.stop = [] { return true; }});
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(build_data(recipe()).documents_kept, 30);
}

TEST_F(Build, SetsOverrideTheRecipe) {
  const BuildReport report = build_data(recipe(), {.sets = {"build.folder=" + quoted(folder("other"))}});
  EXPECT_EQ(report.folder, folder("other").string());
}

TEST_F(Build, ErrorsHaveTheirKind) {
  EXPECT_EQ(error_of([] { build_data("/nowhere.toml"); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { build_data(recipe("sieve = 1\n")); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { build_data(recipe(), {.memory_limit = "much"}); }).kind(), ErrorKind::kConfig);
}

TEST_F(Build, TheTokenizerOfARunIsTheModels) {
  const std::string run = trained("run", {"training.steps=1"});
  const Tokenizer tokenizer = Tokenizer::open(run + "/final");
  const Model model = Model::open(run);
  EXPECT_EQ(tokenizer.vocab_size(), model.vocab_size());
  EXPECT_EQ(tokenizer.encode("The number 12"), model.encode("The number 12"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("naïve 12")), "naïve 12");
}

}  // namespace
}  // namespace strata
