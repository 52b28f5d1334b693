// layers.jsonl and the figures of statistics in metrics.jsonl, of one rank and of several.
#include <gtest/gtest.h>

#include <cmath>

#include "fixtures/tiny_run.h"
#include "observe/layer_log.h"

namespace strata::training {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const Path& path) {
  std::vector<json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json<json>(line));
  return lines;
}

json step_of(const Path& run, int64_t step) {
  for (const json& line : lines_of(run / "metrics.jsonl"))
    if (line.contains("step") && line["step"] == step) return line;
  return {};
}

TEST(LayerStatistics, AreLoggedForAllRanks) {
  const TinyRun tiny;
  const Sets sets{"log.layers=\"2 steps\"", "training.steps=4"};
  const auto run = [&](const std::string& name, int ranks, const Sets& more) {
    tiny.train_ranks(tiny.config(sets + more, name), ranks);
    return tiny.folder(name);
  };
  const Path one = run("one", 1, {});
  const auto wanted = lines_of(one / "layers.jsonl");
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_EQ(wanted[0]["step"], 2);
  EXPECT_EQ(wanted[1]["step"], 4);
  std::map<std::string, int> rows;
  for (const json& row : wanted[1]["layers"]) {
    ++rows[row["tensor"]];
    const bool is_weight = !row["weight_rms"].is_null();
    EXPECT_EQ(is_weight, !row["grad_rms"].is_null()) << row;
    EXPECT_EQ(is_weight, !row["update_ratio"].is_null()) << row;
    if (is_weight) {
      EXPECT_GT(row["update_ratio"].get<double>(), 0) << row;
    }
    if (!row["act_rms"].is_null()) {
      EXPECT_GE(row["act_max"].get<double>(), row["act_rms"].get<double>());
    }
  }
  EXPECT_EQ(rows["stream"], 2);
  EXPECT_EQ(rows["queries"], 2);
  EXPECT_EQ(rows["hidden"], 1);
  for (const char* key : {"update_ratio", "logit_max", "attention_max"}) {
    EXPECT_TRUE(step_of(one, 2).contains(key)) << key;
    EXPECT_FALSE(step_of(one, 3).contains(key)) << key;
  }
  for (const auto& [name, ranks, more] : {std::tuple{"data", 2, Sets{"parallel.zero=0"}},
                                          {"zero3", 2, Sets{"parallel.zero=3"}},
                                          {"tensor", 2, Sets{"parallel.tensor=2"}},
                                          {"pipeline", 2, Sets{"parallel.pipeline=2"}}}) {
    const Path folder = run(name, ranks, more);
    const auto found = lines_of(folder / "layers.jsonl");
    ASSERT_EQ(found.size(), 2u) << name;
    ASSERT_EQ(found[1]["layers"].size(), wanted[1]["layers"].size()) << name;
    for (const json& row : wanted[1]["layers"]) {
      const auto& all = found[1]["layers"];
      const auto same = std::find_if(all.begin(), all.end(), [&](const json& other) {
        return other["layer"] == row["layer"] && other["tensor"] == row["tensor"];
      });
      ASSERT_NE(same, all.end()) << name << row;
      for (const char* key : {"grad_rms", "weight_rms", "act_rms", "act_max"}) {
        ASSERT_EQ(row[key].is_null(), (*same)[key].is_null()) << name << row;
        if (row[key].is_null()) continue;
        const double value = row[key];
        EXPECT_NEAR((*same)[key].get<double>(), value, 2e-2 * std::abs(value)) << name << " " << key << row;
      }
    }
    EXPECT_NEAR(step_of(folder, 4)["logit_max"], step_of(one, 4)["logit_max"].get<double>(),
                0.02 * step_of(one, 4)["logit_max"].get<double>())
        << name;
  }
}

TEST(LayerStatistics, DigestIdentifiesTheWeights) {
  const TinyRun tiny;
  const Sets sets{"training.steps=3", "log.layers=\"never\""};
  tiny.train(sets, "a");
  tiny.train(sets, "b");
  tiny.train(sets + Sets{"run.seed=5"}, "c");
  EXPECT_FALSE(std::filesystem::exists(tiny.folder("a") / "layers.jsonl"));
  for (const int64_t step : {1, 2, 3}) {
    const std::string digest = step_of(tiny.folder("a"), step)["weights_digest"];
    EXPECT_EQ(digest.size(), 16u);
    EXPECT_EQ(digest, step_of(tiny.folder("b"), step)["weights_digest"]);
    EXPECT_NE(digest, step_of(tiny.folder("c"), step)["weights_digest"]);
  }
  EXPECT_NE(step_of(tiny.folder("a"), 1)["weights_digest"], step_of(tiny.folder("a"), 2)["weights_digest"]);
}

TEST(LayerLog, StaysSmallAndGoesOnWhereARunDoes) {
  const ScratchFolder folder;
  const std::vector<observe::LayerStatistics> rows(1);
  const auto steps = [&] {
    std::vector<int64_t> found;
    for (const json& line : lines_of(folder / "layers.jsonl")) found.push_back(line["step"]);
    return found;
  };
  {
    observe::LayerLog log(posix_file_system(), folder.path(), 2, 0);
    for (int64_t step = 1; step <= 1000; ++step) log.step(step, rows);
  }
  std::vector<int64_t> found = steps();
  EXPECT_LE(found.size(), observe::LayerLog::kMostKept);
  EXPECT_EQ(found.front(), 4);
  EXPECT_EQ(found.back(), 1000);
  put_file(folder / "layers.jsonl", read_file(folder / "layers.jsonl") + "{\"step\":1001,");
  observe::LayerLog log(posix_file_system(), folder.path(), 2, 500);
  EXPECT_EQ(steps().back(), 500) << "undone and torn lines are gone";
  for (int64_t step = 501; step <= 510; ++step) log.step(step, rows);
  found = steps();
  EXPECT_EQ(std::vector<int64_t>(found.end() - 2, found.end()), (std::vector<int64_t>{504, 508}));
}

}  // namespace
}  // namespace strata::training
