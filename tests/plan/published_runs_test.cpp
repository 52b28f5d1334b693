#include "plan/published_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "plan/csv.h"

namespace strata::planning {
namespace {

constexpr const char* kFile = STRATA_PLANNING_DATA "/published_runs.csv";

std::string message_of(const std::string& text) {
  try {
    parse_runs(text, "t.csv");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

void expect_has(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

// The message about one cell; empty if it is valid.
std::string problem_of(const std::string& column, const std::string& cell) {
  const RunTable table = parse_runs("id,gpu,stack," + column + "\na,H100,nemo," + cell + "\n", "t.csv");
  EXPECT_LE(table.problems.size(), 1u);
  return table.problems.empty() ? "" : to_string(table.problems[0]);
}

TEST(PublishedRuns, FileIsValid) {
  const std::vector<PublishedRun> runs = read_runs(kFile);
  EXPECT_EQ(runs.size(), 328u);
  std::set<std::string> ids, devices;
  for (const PublishedRun& run : runs) {
    ids.insert(run.id);
    devices.insert(run.gpu);
    EXPECT_TRUE(run.conflicts.empty()) << run.id << " " << (run.conflicts.empty() ? "" : run.conflicts[0]);
    EXPECT_FALSE(run.source.empty()) << run.id;
  }
  EXPECT_EQ(ids.size(), runs.size());
  EXPECT_EQ(devices.size(), 20u);
  const auto count = [&](auto condition) { return std::count_if(runs.begin(), runs.end(), condition); };
  EXPECT_EQ(count([](const PublishedRun& run) { return run.memory_gb.has_value(); }), 40);
  EXPECT_EQ(count([](const PublishedRun& run) { return run.ep.value_or(1) > 1; }), 63);
  EXPECT_EQ(count([](const PublishedRun& run) { return run.cp.value_or(1) > 1; }), 27);
  EXPECT_EQ(count([](const PublishedRun& run) { return run.num_gpus.value_or(0) >= 512; }), 98);
  const auto flagged = [&](const char* flag) {
    return count([&](const PublishedRun& run) {
      return std::find(run.flags.begin(), run.flags.end(), flag) != run.flags.end();
    });
  };
  EXPECT_EQ(flagged("hfu"), 18);
  EXPECT_EQ(flagged("causal_half"), 53);
  EXPECT_EQ(flagged("mfu_wrong"), 14);
  EXPECT_EQ(flagged("inconsistent"), 6);
  EXPECT_EQ(flagged("proxy_layers"), 14);
}

TEST(PublishedRuns, ValuesOfARow) {
  const std::vector<PublishedRun> runs = read_runs(kFile);
  const auto row = [&](const char* id) {
    return *std::find_if(runs.begin(), runs.end(), [&](const PublishedRun& run) { return run.id == id; });
  };
  const PublishedRun sc21 = row("sc21-t1-gpt-18b");
  EXPECT_NEAR(sc21.params_total.value(), 18.4e9, 1);
  EXPECT_EQ(sc21.layers, 40);
  EXPECT_EQ(sc21.global_batch_tokens, 2097152);
  EXPECT_EQ(sc21.tp, 8);
  EXPECT_EQ(sc21.recompute, Recompute::kFull);
  EXPECT_EQ(sc21.precision, Precision::kFp16);
  EXPECT_FALSE(sc21.cp);
  EXPECT_EQ(sc21.flags, std::vector<std::string>{"hfu"});
  const PublishedRun deepseek = row("deepseek-v3-h800");
  EXPECT_EQ(deepseek.fsdp, (Sharding{.stage = 1, .degree = {}}));
  EXPECT_EQ(deepseek.recompute, Recompute::kSelective);
  EXPECT_EQ(deepseek.precision, Precision::kFp8);
  EXPECT_NEAR(published_step_seconds(deepseek).value(), 62914560 / 3160494.0, 1e-6);
  constexpr std::string_view kWanted[] = {"heads", "layers", "micro_batch", "step_time_s"};
  EXPECT_EQ(missing_columns(deepseek, kWanted),
            (std::vector<std::string_view>{"heads", "micro_batch", "step_time_s"}));
}

TEST(PublishedRuns, DevicesAreInTheCatalogueExceptOneGroup) {
  const Catalogue catalogue = builtin_catalogue();
  for (const PublishedRun& run : read_runs(kFile)) {
    if (run.gpu != "Blackwell (B200/GB200 class)") {
      EXPECT_NO_THROW(find_chip(catalogue, run.gpu)) << run.gpu;
    }
  }
}

TEST(PublishedRuns, InvalidCellsAreReportedWithTheirPosition) {
  EXPECT_EQ(problem_of("mfu", "0.41"), "");
  EXPECT_EQ(problem_of("mfu", ""), "") << "a missing value";
  expect_has(problem_of("mfu", "41.5"), {"2:13 mfu", "found \"41.5\"", "not per cent"});
  expect_has(problem_of("mfu", "41.5%"), {"found \"41.5%\""});
  expect_has(problem_of("memory_GB", "80 GB"), {"memory_GB", "1e9 bytes"});
  expect_has(problem_of("memory_GB", "81920"), {"at most 2000"});
  expect_has(problem_of("params_total_B", "70000000000"), {"billions"});
  expect_has(problem_of("step_time_s", "3s"), {"seconds"});
  expect_has(problem_of("step_time_s", "-3"), {"seconds"});
  expect_has(problem_of("layers", "32.0"), {"whole number from 1 to 10000"});
  expect_has(problem_of("layers", "0"), {"whole number"});
  expect_has(problem_of("hidden", "4k"), {"whole number"});
  expect_has(problem_of("tokens_per_s", "nan"), {"above 0"});
  expect_has(problem_of("tokens_per_s", " 5"), {"above 0"});
  expect_has(problem_of("tokens_per_s", "\"5,000\""), {"found \"5,000\""});
  expect_has(problem_of("precision", "bf61"), {"bf16"});
  expect_has(problem_of("recompute", "some"), {"none, selective, full"});
  expect_has(problem_of("fsdp", "zero4"), {"zero1, zero2, zero3"});
  const RunTable table = parse_runs("id,gpu,stack\na,,nemoo\n", "t.csv");
  ASSERT_EQ(table.problems.size(), 2u);
  expect_has(to_string(table.problems[1]), {"nemoo", "did you mean \"nemo\"?"});
}

TEST(PublishedRuns, InvalidHeadersAreRejected) {
  expect_has(message_of("id,gpu,stack,step_time_ms\n"),
             {"[t.csv:1:14]", "step_time_ms", "did you mean \"step_time_s\"?"});
  expect_has(message_of("id,gpu,stack,id\n"), {"again"});
  expect_has(message_of("id,stack\n"), {"no column \"gpu\""});
  expect_has(message_of(""), {"no header"});
  expect_has(message_of("\n"), {"found column \"\""});
  EXPECT_EQ(parse_runs("stack,gpu,id\r\nnemo,H100,a\r\n", "t.csv").runs.at(0).id, "a")
      << "columns may be in any order";
}

TEST(PublishedRuns, InvalidCsvIsRejectedWithItsPosition) {
  const std::string head = "id,gpu,stack,notes\n";
  expect_has(message_of(head + "a,b,nemo\n"), {"[t.csv:2]", "3 cells, expected 4"});
  expect_has(message_of(head + "a,b,nemo,c\n\n"), {"[t.csv:3]", "1 cells"});
  expect_has(message_of(head + "a,b,nemo,\"c\n"), {"[t.csv:2:10]", "never closed"});
  expect_has(message_of(head + "a,b,nemo,c\"d\n"), {"[t.csv:2:11]", "a quote inside"});
  expect_has(message_of(head + "a,b,nemo,\"c\"d\n"), {"[t.csv:2:13]", "after a closing quote"});
  const PublishedRun run =
      parse_runs("\xEF\xBB\xBF" + head + "a,b,nemo,\"one, \"\"two\"\"\nthree\"", "t.csv").runs.at(0);
  EXPECT_EQ(run.notes, "one, \"two\"\nthree");
}

TEST(PublishedRuns, ContradictionsAreNamed) {
  const auto conflicts = [](const std::string& columns, const std::string& cells) {
    return parse_runs("id,gpu,stack," + columns + "\na,H100,nemo," + cells + "\n", "t.csv")
        .runs.at(0)
        .conflicts;
  };
  EXPECT_EQ(conflicts("num_gpus,tp,pp,dp,cp", "64,8,2,4,").size(), 0u);
  EXPECT_EQ(conflicts("num_gpus,tp,pp,dp,cp", "64,8,2,4,2").size(), 1u);
  EXPECT_EQ(conflicts("tokens_per_s,tokens_per_s_per_gpu,num_gpus", "1000,100,8").size(), 1u);
  EXPECT_EQ(conflicts("tokens_per_s,step_time_s,global_batch_tokens", "1000,2,2010").size(), 0u);
  EXPECT_EQ(conflicts("tokens_per_s,step_time_s,global_batch_tokens", "1000,2,4000").size(), 1u);
  EXPECT_EQ(conflicts("params_total_B,params_active_B", "8,37").size(), 1u);
}

TEST(PublishedRuns, AllProblemsOfAFileAreListed) {
  const RunTable table = parse_runs("id,gpu,stack,mfu,layers\na,b,nemo,50,x\n", "t.csv");
  EXPECT_EQ(table.problems.size(), 2u);
  EXPECT_FALSE(table.runs.at(0).mfu) << "not guessed";
  EXPECT_THROW(read_runs("/absent.csv"), ConfigError);
}

}  // namespace
}  // namespace strata::planning
