#include "observe/rank_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "fixtures/scratch_folder.h"
#include "observe/rank_section.h"

#include "base/json.h"

namespace strata::observe {
namespace {

// Rank r takes r + step milliseconds.
std::vector<RankFigures> figures(int64_t ranks, int64_t step) {
  std::vector<RankFigures> out;
  for (int64_t rank = 0; rank < ranks; ++rank)
    out.push_back(
        {static_cast<double>(rank + step), static_cast<double>(rank) / 8, 1e6 * static_cast<double>(rank)});
  return out;
}

std::vector<nlohmann::json> lines_of(const Path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json<nlohmann::json>(line));
  return lines;
}

void log_steps(RankLog& log, int64_t ranks, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) log.step(step, figures(ranks, step));
}

TEST(RankLog, RecordsEachRanksMeanSinceThePreviousSample) {
  const ScratchFolder folder;
  RankLog log(posix_file_system(), folder.path(), 3, 10, 0);
  log_steps(log, 3, 1, 25);
  const auto lines = lines_of(folder / "ranks.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 10);
  EXPECT_EQ(lines[2]["ranks"], 3);
  EXPECT_EQ(lines[1]["step_ms"], (std::vector<double>{6, 7, 8})) << "steps 2 to 10";
  EXPECT_EQ(lines[2]["step_ms"], (std::vector<double>{15.5, 16.5, 17.5})) << "steps 11 to 20";
  EXPECT_EQ(lines[2]["data_wait_ms"], (std::vector<double>{0, 0.125, 0.25}));
  EXPECT_EQ(lines[2]["memory_bytes"], (std::vector<double>{0, 1e6, 2e6}));
  ASSERT_EQ(log.samples().size(), 3u);
  EXPECT_EQ(log.samples()[2].bins[1].step_ms, 16.5);
}

TEST(RankLog, ABinOfRanksHasItsSlowest) {
  const ScratchFolder folder;
  RankLog log(posix_file_system(), folder.path(), 1000, 1, 0);
  log_steps(log, 1000, 1, 2);
  const auto lines = lines_of(folder / "ranks.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  for (size_t bin = 0; bin < 64; ++bin)
    EXPECT_EQ(lines[1]["step_ms"][bin].get<size_t>(), (bin + 1) * 1000 / 64 - 1 + 2) << bin;
  EXPECT_LT(dump_json(lines[1]).size(), 3000u);
}

TEST(RankLog, AResumeKeepsTheSamplesUpToItsState) {
  const ScratchFolder folder;
  {
    RankLog log(posix_file_system(), folder.path(), 2, 1, 0);
    log_steps(log, 2, 1, 8);
  }
  posix_file_system().open_for_writing(folder / "ranks.jsonl", /*keep=*/true)->append("{\"step\":9,\"ra");
  {
    RankLog log(posix_file_system(), folder.path(), 2, 1, 5);
    EXPECT_EQ(log.samples().size(), 5u);
    log_steps(log, 2, 6, 7);
    EXPECT_EQ(log.samples().size(), 7u);
  }
  const auto lines = lines_of(folder / "ranks.jsonl");
  ASSERT_EQ(lines.size(), 7u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  const RankLog other(posix_file_system(), folder.path(), 3, 1, 7);
  EXPECT_TRUE(other.samples().empty()) << "samples of another number of ranks are dropped";
}

TEST(RankLog, HistoryStaysSmall) {
  const ScratchFolder folder;
  RankLog log(posix_file_system(), folder.path(), 2, 1, 0);
  log_steps(log, 2, 1, 3000);
  EXPECT_LE(log.samples().size(), RankLog::kMostKept);
  EXPECT_EQ(log.samples().back().step, 3000);
  EXPECT_EQ(log.samples().back().bins[1].step_ms, 3001);
  for (size_t i = 1; i < log.samples().size(); ++i)
    EXPECT_LT(log.samples()[i - 1].step, log.samples()[i].step);
}

TEST(RankSection, NamesTheSlowestAndDrawsEachRank) {
  MetricsTable metrics;
  std::vector<RankSample> samples;
  for (int64_t step = 1; step <= 30; ++step) {
    samples.push_back({.step = step, .ranks = 4, .bins = figures(4, step)});
    metrics.add_step(step, {{"slowest_rank", int64_t{step % 3 == 0 ? 1 : 3}},
                            {"step_ms_min", 1.0 * static_cast<double>(step)},
                            {"step_ms_max", 3.0 + static_cast<double>(step)}});
  }
  const std::string section = rank_section(samples, metrics);
  EXPECT_NE(section.find("slowest: rank 3, in 20 of the last 30 steps"), std::string::npos) << section;
  for (const char* const part :
       {"rank 0", "rank 3", "step 1<", "step 30", "Waiting for data", "Memory", "3.00 MB"})
    EXPECT_NE(section.find(part), std::string::npos) << part;
  EXPECT_EQ(section.find("nan"), std::string::npos);
  EXPECT_EQ(rank_section({}, metrics), "");
}

TEST(RankSection, IsSmallForAThousandRanks) {
  std::vector<RankSample> samples;
  const MetricsTable metrics;
  for (int64_t step = 1; step <= 500; ++step)
    samples.push_back(
        {.step = step, .ranks = 1000, .bins = figures(RankSample::kMostBins, step * 7919 % 100)});
  const std::string section = rank_section(samples, metrics);
  EXPECT_NE(section.find("0 to 14"), std::string::npos);
  EXPECT_LT(section.size(), 700'000u);
}

}  // namespace
}  // namespace strata::observe
