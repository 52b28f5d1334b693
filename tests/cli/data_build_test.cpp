// A data build by the built program: any number of threads or ranks, and a kill, leave the same bytes.
#include <cstdlib>
#include <map>

#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

class DataBuild : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    // Three sources, so at least three parts. Documents come in groups of three near duplicates, and the last
    // source repeats the first.
    for (const int source : {0, 1, 2}) {
      std::string lines;
      for (int i = 0; i < 90; ++i) {
        std::string text;
        for (int word = 0; word < 60; ++word) {
          const int number = (i / 3 * 31 + word * word + source % 2 * 7) % 977;
          text += {'w',
                   'o',
                   static_cast<char>('a' + number % 26),
                   static_cast<char>('a' + number / 26 % 26),
                   static_cast<char>('a' + number / 676),
                   ' '};
        }
        lines += "{\"id\":\"" + std::to_string(source) + "-" + std::to_string(i) + "\",\"text\":\"" + text +
                 (i % 3 == 1 ? "and one more" : "and no more") + "\"}\n";
      }
      write("part-" + std::to_string(source) + ".jsonl", lines);
    }
    write("recipe.toml", R"(
[build]
folder = "built"
[[source]]
name = "a"
path = "part-0.jsonl"
[[source]]
name = "b"
path = "part-1.jsonl"
[[source]]
name = "c"
path = "part-2.jsonl"
[[stage]]
kind = "simple"
[[stage]]
kind = "minhash"
[output]
clusters = true
)");
  }

  // Returns every file of a build with its bytes and removes the folder.
  std::map<std::string, std::string> take() {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "built")) {
      if (entry.is_regular_file() && entry.path().filename() != ".lock")
        files[entry.path().lexically_relative(folder_).string()] = read_file(entry.path());
    }
    std::filesystem::remove_all(folder_ / "built");
    return files;
  }
};

TEST_F(DataBuild, IsTheSameForAnyNumberOfThreads) {
  const Outcome one = run("data build recipe.toml --set build.workers=1");
  ASSERT_EQ(one.code, 0) << one.err;
  const auto expected = take();
  // Two in three of the 270 documents, and all of the last source, resemble an earlier one.
  EXPECT_NE(expected.at("built/clusters/02-minhash.jsonl").find("\"size\":6"), std::string::npos);
  EXPECT_GT(expected.at("built/documents/part-00001.jsonl").size(), 5000u);
  const Outcome three = run("data build recipe.toml --set build.workers=3");
  ASSERT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(take(), expected);
}

TEST_F(DataBuild, IsTheSameForThreeRanks) {
#ifdef STRATA_MPIRUN
  if (std::system(STRATA_MPIRUN " --allow-run-as-root --oversubscribe -n 2 true > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "mpirun starts no processes here";
  ASSERT_EQ(run("data build recipe.toml").code, 0);
  const auto expected = take();
  const Outcome ranks =
      run("data build recipe.toml", STRATA_MPIRUN " --allow-run-as-root --oversubscribe -n 3");
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(take(), expected);
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

}  // namespace
}  // namespace strata
