// The layout of ranks by [parallel]: resolved degrees, and keys without effect.
#include "config/layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::config {
namespace {

RunConfig parallel(const std::string& keys) {
  return parse_run_config("[model]\nfamily = \"llama3\"\n[data]\ntrain = [\"x.bin\"]\n[parallel]\n" + keys,
                          "run.toml");
}

std::vector<std::string> idle(const std::string& keys) {
  const RunConfig config = parallel(keys);
  EXPECT_TRUE(config.reading_issues.empty()) << keys;
  std::vector<Issue> issues;
  check_idle_keys(config, issues);
  std::vector<std::string> names;
  for (const Issue& issue : issues) {
    names.push_back(issue.key);
    EXPECT_EQ(issue.origin.kind, Origin::Kind::kFile) << issue.to_string();
    EXPECT_NE(issue.problem.find("leave it out"), std::string::npos) << issue.to_string();
  }
  return names;
}

TEST(LayoutTest, RejectsExactlyTheKeysWithoutEffect) {
  struct Row {
    const char *key, *value;  // set
    const char* without;      // with these keys it has no effect
    const char* with;         // with these keys it has one
  };
  const Row rows[] = {{"schedule", "\"zbv\"", "", "pipeline = 2"},
                      {"schedule", "\"zbv\"", "pipeline = 1", "pipeline = -1"},
                      {"virtual_stages", "3", "tensor = 2", "pipeline = 2"},
                      {"stage_layers", "[2]", "", "pipeline = 2"},
                      {"context_kind", "\"ring\"", "", "context = 2"},
                      {"sequence", "false", "", "tensor = 2"},
                      {"overlap_chunks", "2", "", "tensor = 2"},
                      {"overlap_chunks", "2", "tensor = 2\nsequence = false", "tensor = -1"},
                      {"dispatch", "\"flat\"", "", "expert = 2"},
                      {"expert_capacity", "1.5", "", "expert = -1"},
                      {"zero", "1", "replicate = 2\nshard = 1", "replicate = 2"},
                      {"prefetch", "3", "zero = 2", "zero = 3"},
                      {"prefetch", "3", "shard = 1", "zero = \"auto\""},
                      {"reshard_after_forward", "false", "zero = 1", ""}};
  for (const Row& row : rows) {
    const std::string set = std::string(row.key) + " = " + row.value + "\n";
    const std::vector<std::string> found = idle(set + row.without);
    ASSERT_EQ(found.size(), 1u) << set << row.without;
    EXPECT_EQ(found.front(), std::string("parallel.") + row.key);
    EXPECT_TRUE(idle(set + row.with).empty()) << set << row.with;
  }
  EXPECT_TRUE(idle("schedule = \"1f1b\"\nzero = 0\nshard = 1\nprefetch = 0\nsequence = true").empty())
      << "a default value is not a request";
}

// The configuration stored by a run on one rank, from degrees of -1.
TEST(LayoutTest, AcceptsAStoredRun) {
  RunConfig stored = parallel("shard = 1\nzero = 3\nprefetch = 1");
  stored.run.started_in = "/somewhere";
  std::vector<Issue> issues;
  check_idle_keys(stored, issues);
  EXPECT_TRUE(issues.empty());
  EXPECT_EQ(idle_keys(stored).size(), 2u) << "it is a warning";
}

// -1 and its resolved number.
TEST(LayoutTest, AnOpenDegreeEqualsItsNumber) {
  for (const int64_t ranks : {1, 2, 4, 6, 8, 12}) {
    for (const int64_t tensor : {1, 2}) {
      if (ranks % tensor != 0) continue;
      for (const int64_t expert : {1, 2, 3, 4, 8, -1}) {
        const std::string others =
            "tensor = " + std::to_string(tensor) + "\nexpert = " + std::to_string(expert) + "\n";
        const RunConfig open = with_degrees(parallel(others + "shard = -1"), ranks);
        const RunConfig given =
            with_degrees(parallel(others + "shard = " + std::to_string(ranks / tensor)), ranks);
        EXPECT_TRUE(compare(open, given).empty()) << ranks << " ranks, " << others;
        EXPECT_EQ(mesh_of(given).ranks(), ranks);
      }
    }
  }
}

TEST(LayoutTest, LimitsAreAboveZero) {
  for (const char* key : {"silence_limit", "wait_limit"}) {
    for (const char* value : {"\"0s\"", "\"0min\"", "\"0:00\"", "0"}) {
      const RunConfig config = parallel(std::string(key) + " = " + value);
      ASSERT_EQ(config.reading_issues.size(), 1u) << key << " = " << value;
      EXPECT_EQ(config.reading_issues.front().key, std::string("parallel.") + key);
    }
    EXPECT_TRUE(parallel(std::string(key) + " = \"0.5s\"").reading_issues.empty());
  }
}

}  // namespace
}  // namespace strata::config
