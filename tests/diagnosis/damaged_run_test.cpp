// Runs with damaged, missing and odd files: the diagnosis never fails.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/random.h"
#include "diagnosis/run_files.h"
#include "library/diagnosis.h"

namespace strata::diagnosis {
namespace {

const char* const kFiles[] = {"run.toml",
                              "metrics.jsonl",
                              "metrics.discarded.jsonl",
                              "layers.jsonl",
                              "experts.jsonl",
                              "ranks.jsonl",
                              "ledger.jsonl",
                              "logs/rank-00000.log",
                              "checkpoints/step-00000300/manifest.json",
                              "checkpoints/step-00000300/state.json"};

// Short, with a line in every file.
void fill(RunFiles& run) {
  run.cut(250);
  run.lines.erase(run.lines.begin() + 1, run.lines.end() - 60);
  for (std::vector<Line>* samples : {&run.layers, &run.experts, &run.ranks}) samples->resize(10);
  run.checkpoints = {{.step = 200}, {.step = 300}};
  run.discarded.push_back({{"step", 251}, {"time", 1.7e9 + 200}, {"step_ms", 500}, {"loss", nullptr}});
  run.ledger.push_back({{"attempt", 1}, {"exit", 4}, {"first_rank", 2}, {"phase", "step"}});
  run.write();
  std::filesystem::create_directories(run.path() / "logs");
  put_file(run.path() / "logs/rank-00000.log", "step 3\nerror: rank 2: [memory] full\nend\n");
}

std::string diagnosed(const Path& folder) {
  return library::json_of(library::diagnose_run(folder.string()));
}

TEST(DamagedRun, AnyMissingFileIsAccepted) {
  for (const char* name : kFiles) {
    RunFiles run;
    fill(run);
    std::filesystem::remove(run.path() / name);
    const auto json = parse_json<nlohmann::json>(diagnosed(run.path()));
    EXPECT_EQ(json["state"], "failed") << name;
  }
}

TEST(DamagedRun, AnyFileMayBeCutOrChanged) {
  RunFiles run;
  fill(run);
  for (uint64_t i = 0; i < 60; ++i) {
    const Path path = run.path() / kFiles[i % std::size(kFiles)];
    const std::string whole = read_file(path);
    std::string text = whole;
    const auto bits = philox(RandomKey{7, 0}, i);
    for (int n = 0; n < 3; ++n)
      text[bits[static_cast<size_t>(n)] % text.size()] = static_cast<char>(bits[3] >> (8 * n));
    if (i % 3 == 0) text.resize(bits[0] % text.size());
    put_file(path, text);
    EXPECT_TRUE(parse_json<nlohmann::json>(diagnosed(run.path())).is_object()) << path;
    put_file(path, whole);
  }
}

TEST(DamagedRun, OddValuesAreAccepted) {
  const char* const odd[] = {
      "{\"step\": 1e300}\n",
      "{\"step\": -5, \"loss\": 3}\n",
      "{\"step\": 18446744073709551615}\n",
      "[]\n",
      "null\n",
      "{\"event\": 3}\n",
      "{\"event\": \"save\", \"held_up\": \"long\"}\n",
      "{\"event\": \"start\", \"time\": -1e308}\n",
      "{\"event\": \"intervention\", \"to_step\": 1e300, \"rule\": [1]}\n",
      "{\"step\": 1, \"loss\": 1e308, \"grad_norm\": -1e308, \"time\": 1e308, \"step_ms\": 1e308, \"lr\": 0}\n",
      "{\"step\": 9007199254740992, \"loss\": {\"a\": 1}, \"time\": 1}\n",
      "{\"step\": 300, \"layers\": [{\"layer\": 1e300, \"zero_share\": \"x\"}, 3], \"tokens\": [[1]], \"ranks\": 2}\n",
      "\xff\xfe\n",
      "\n",
      ""};
  RunFiles run;
  fill(run);
  for (const char* name : kFiles) {
    const Path path = run.path() / name;
    const std::string whole = read_file(path);
    for (const char* line : odd) {
      put_file(path, line + whole + line);
      EXPECT_TRUE(parse_json<nlohmann::json>(diagnosed(run.path())).is_object()) << path << line;
      put_file(path, line);
      EXPECT_TRUE(parse_json<nlohmann::json>(diagnosed(run.path())).is_object()) << path << line;
    }
    put_file(path, whole);
  }
}

TEST(DamagedRun, PipesAndFoldersInPlaceOfFilesAreReported) {
  RunFiles run;
  fill(run);
  std::filesystem::remove(run.path() / "layers.jsonl");
  ASSERT_EQ(::mkfifo((run.path() / "layers.jsonl").c_str(), 0600), 0);
  std::filesystem::remove(run.path() / "metrics.jsonl");
  std::filesystem::create_directory(run.path() / "metrics.jsonl");
  const auto diagnosis = library::diagnose_run(run.path().string());
  ASSERT_NE(find(diagnosis, "damaged_files"), nullptr);
  EXPECT_EQ(find(diagnosis, "damaged_files")->evidence["files"].size(), 2U);
}

TEST(FailedRun, NamesTheErrorOfTheRankAndWhereItResumes) {
  RunFiles run;
  fill(run);
  const auto diagnosis = library::diagnose_run(run.path().string());
  const Finding* failed = find(diagnosis, "failed");
  ASSERT_NE(failed, nullptr);
  EXPECT_NE(failed->sentence.find("rank 2: [memory] full"), std::string::npos) << failed->sentence;
  EXPECT_NE(failed->sentence.find("after step 300"), std::string::npos) << failed->sentence;
}

}  // namespace
}  // namespace strata::diagnosis
