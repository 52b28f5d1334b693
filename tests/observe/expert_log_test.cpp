#include "observe/expert_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "fixtures/scratch_folder.h"
#include "observe/expert_section.h"

#include "base/json.h"

namespace strata::observe {
namespace {

// Layers 1 and 3 with four experts each; the last of layer 3 has no tokens.
std::vector<LayerTokens> loads(int64_t step) {
  return {{1, {step, 1, 2, 3}}, {3, {10 * step, 0, 5, 0}}};
}

void log_steps(ExpertLog& log, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) log.step(step, loads(step));
}

std::vector<nlohmann::json> lines_of(const Path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json<nlohmann::json>(line));
  return lines;
}

TEST(ExpertSpread, MatchesTheFormulas) {
  const std::vector<int64_t> counts{6, 2, 0, 0};
  const ExpertSpread spread = spread_of(counts);
  EXPECT_DOUBLE_EQ(spread.max_violation, 6.0 / 2 - 1);
  const double entropy = -0.75 * std::log(0.75) - 0.25 * std::log(0.25);
  EXPECT_DOUBLE_EQ(spread.entropy, entropy / std::log(4.0));
  EXPECT_DOUBLE_EQ(spread.in_use, std::exp(entropy));
  EXPECT_EQ(spread.dead, 2);
  const std::vector<int64_t> even{5, 5, 5}, none{0, 0};
  EXPECT_DOUBLE_EQ(spread_of(even).entropy, 1);
  EXPECT_NEAR(spread_of(even).in_use, 3, 1e-12);
  EXPECT_EQ(spread_of(none).in_use, 0);
  EXPECT_EQ(spread_of(none).dead, 2);
}

TEST(ExpertLog, AddsUpTheStepsSinceThePreviousSample) {
  const ScratchFolder folder;
  ExpertLog log(posix_file_system(), folder.path(), 10, 0);
  log_steps(log, 1, 23);
  auto lines = lines_of(folder / "experts.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 10);
  EXPECT_EQ(lines[1]["steps"], 9);
  EXPECT_EQ(lines[1]["layers"], (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(lines[1]["tokens"][0], (std::vector<int64_t>{54, 9, 18, 27})) << "steps 2 to 10";
  EXPECT_EQ(lines[2]["tokens"][1], (std::vector<int64_t>{1550, 0, 50, 0})) << "steps 11 to 20";
  log.flush();
  log.flush();
  lines = lines_of(folder / "experts.jsonl");
  ASSERT_EQ(lines.size(), 4u) << "nothing is written twice";
  EXPECT_EQ(lines[3]["step"], 23);
  EXPECT_EQ(lines[3]["steps"], 3);
}

TEST(ExpertLog, AResumeKeepsTheSamplesUpToItsState) {
  const ScratchFolder folder;
  {
    ExpertLog log(posix_file_system(), folder.path(), 2, 0);
    log_steps(log, 1, 8);
  }
  posix_file_system().open_for_writing(folder / "experts.jsonl", /*keep=*/true)->append("{\"step\":10,\"st");
  {
    ExpertLog log(posix_file_system(), folder.path(), 2, 6);
    EXPECT_EQ(log.samples().back().step, 6);
    log_steps(log, 7, 8);
  }
  int64_t steps = 0;
  for (const auto& line : lines_of(folder / "experts.jsonl")) steps += line["steps"].get<int64_t>();
  EXPECT_EQ(steps, 8) << "each step once";
}

TEST(ExpertLog, StaysSmallAndLosesNoTokens) {
  const ScratchFolder folder;
  constexpr int64_t kSteps = 3000;
  {
    ExpertLog log(posix_file_system(), folder.path(), 1, 0);
    log_steps(log, 1, 1500);
    log.flush();
  }
  ExpertLog log(posix_file_system(), folder.path(), 1, 1500);
  log_steps(log, 1501, kSteps);
  log.flush();
  const auto lines = lines_of(folder / "experts.jsonl");
  EXPECT_LE(lines.size(), ExpertLog::kMostKept);
  EXPECT_EQ(lines.size(), log.samples().size());
  int64_t steps = 0, tokens = 0, last = 0;
  for (const auto& line : lines) {
    EXPECT_GT(line["step"], last);
    last = line["step"];
    steps += line["steps"].get<int64_t>();
    tokens += line["tokens"][0][0].get<int64_t>();
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(last, kSteps);
  EXPECT_EQ(tokens, kSteps * (kSteps + 1) / 2);
}

// Lines that another tool or another model wrote.
TEST(ExpertLog, DropsLinesOfOtherModelsAndNumbersOutOfRange) {
  const ScratchFolder folder;
  put_file(folder / "experts.jsonl",
           "{\"step\":4,\"steps\":9223372036854775807,\"layers\":[1],\"tokens\":[[1,2]]}\n"
           "{\"step\":4,\"steps\":1,\"layers\":[1],\"tokens\":[[9223372036854775807,9223372036854775807]]}\n"
           "{\"step\":4,\"steps\":1,\"layers\":[1],\"tokens\":[[-1,1]]}\n"
           "{\"step\":4,\"steps\":1,\"layers\":[7],\"tokens\":[[]]}\n");
  ExpertLog log(posix_file_system(), folder.path(), 2, 8);
  EXPECT_EQ(log.samples().size(), 1U) << "of a layer without experts";
  EXPECT_FALSE(expert_section(log.samples()).empty());
  log_steps(log, 9, 2000);
  EXPECT_FALSE(expert_section(log.samples()).empty());
  for (const auto& line : lines_of(folder / "experts.jsonl")) EXPECT_NE(line["layers"][0], 7);
}

TEST(ExpertSection, NamesTheBusiestAndTheUnusedExpertsAndDrawsEachLayer) {
  std::vector<ExpertSample> samples;
  for (int64_t step = 1; step <= 3; ++step)
    samples.push_back({.step = 10 * step, .steps = 10, .layers = loads(step)});
  const std::string section = expert_section(samples);
  for (const char* const part :
       {"4 in each of 2", "steps 21 to 30", "expert 0 of layer 3, with 3.4 × an equal share", "2 of layer 3",
        "layer 1<", "layer 3<", "expert 3<", "MaxVio"})
    EXPECT_NE(section.find(part), std::string::npos) << part << "\n" << section;
  EXPECT_EQ(section.find("nan"), std::string::npos);
  EXPECT_EQ(expert_section({}), "");
}

// DeepSeek-V3's layers and experts.
TEST(ExpertSection, IsSmallForManyExperts) {
  std::vector<ExpertSample> samples;
  for (int64_t step = 1; step <= 256; ++step) {
    ExpertSample& sample = samples.emplace_back(ExpertSample{.step = step, .steps = 1, .layers = {}});
    for (int64_t layer = 3; layer < 61; ++layer) {
      sample.layers.push_back({layer, {}});
      for (int64_t expert = 0; expert < 256; ++expert)
        sample.layers.back().tokens.push_back((expert * 7919 + layer * 31 + step) % 101);
    }
  }
  EXPECT_LT(expert_section(samples).size(), 1'000'000u);
}

}  // namespace
}  // namespace strata::observe
