// Ranks resume in other layouts, train with every optimizer, and produce the same bits with all memory
// options. layouts_test.cpp compares each layout with one rank.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Layout {
  const char* name;
  int replicate, shard, zero;
  int ranks() const { return replicate * shard; }
};
constexpr Layout kLayouts[] = {{"data2", 2, 1, 0},      {"data4", 1, 4, 0},     {"zero1_2", 1, 2, 1},
                               {"zero2_3", 1, 3, 2},    {"zero3_4", 1, 4, 3},   {"zero1_4", 1, 4, 1},
                               {"zero2_2", 1, 2, 2},    {"zero3_3", 1, 3, 3},   {"hybrid_2x2", 2, 2, 3},
                               {"hybrid_2x4", 2, 4, 1}, {"hybrid_4x2", 4, 2, 2}};

Sets with(Sets sets, const Layout& layout) {
  sets.push_back("parallel.replicate=" + std::to_string(layout.replicate));
  sets.push_back("parallel.shard=" + std::to_string(layout.shard));
  sets.push_back("parallel.zero=" + std::to_string(layout.zero));
  return sets;
}

// One value per step.
std::vector<double> at_each_step(const Path& run, const std::string& key) {
  std::vector<double> out;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = parse_json<nlohmann::json>(line);
    if (json.contains("step")) out.push_back(json.at(key));
  }
  return out;
}

class Ranks : public testing::TestWithParam<Layout> {
 protected:
  // Uses sizes that no number of ranks divides.
  std::string toml(const std::string& name) const {
    std::string text = tiny_.toml(name);
    const auto put = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    put("intermediate_size = 48", "intermediate_size = 46");
    put("vocab_size = 300", "vocab_size = 301");
    return text;
  }
  TrainResult train(const std::string& name, int ranks, const Sets& sets, int64_t stop_at = -1) const {
    return tiny_.train_ranks(config::parse_run_config(toml(name), "RUN.toml", sets), ranks, stop_at);
  }
  std::vector<double> values(const std::string& name, const std::string& key) const {
    return at_each_step(tiny_.folder(name), key);
  }
  void expect_near(const std::string& one, const std::string& many, double tolerance) const {
    for (const char* key : {"loss", "grad_norm", "param_norm"}) {
      const auto expected = values(one, key), found = values(many, key);
      ASSERT_EQ(found.size(), expected.size()) << many;
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i]))
            << many << ", " << key << ", step " << i + 1;
    }
    EXPECT_EQ(values(one, "first_sample"), values(many, "first_sample"));
  }

  TinyRun tiny_;
};

// A stopped run resumes in another layout, and bit for bit in the same one.
TEST_P(Ranks, ResumeInAnyLayout) {
  const Sets sets{"training.micro_batch_size=1"};
  const Sets mine = with(sets, GetParam());
  train("whole", GetParam().ranks(), mine);
  const TrainResult cut = train("cut", GetParam().ranks(), mine, 3);
  EXPECT_EQ(cut.end, RunEnd::kInterrupted);
  std::filesystem::copy(tiny_.folder("cut"), tiny_.folder("cut-one"),
                        std::filesystem::copy_options::recursive);
  train("cut", GetParam().ranks(), mine);
  expect_same_bits(bits_of(tiny_.folder("whole"), 6), bits_of(tiny_.folder("cut"), 6));
  train("cut-one", 1, sets);
  expect_near("whole", "cut-one", 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Ranks, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return std::string(layout.param.name); });

class RanksOfOptimizer : public testing::TestWithParam<const char*> {
 protected:
  // The losses; `stop_at`: the number of steps, or 0.
  std::vector<double> losses(const std::string& name, int ranks, const Sets& more,
                             int64_t stop_at = 0) const {
    const Sets sets{std::string("optimizer.name=\"") + GetParam() + "\"", "training.micro_batch_size=2",
                    "optimizer.lr=1e-3"};
    FaultyFileSystem quick;
    std::atomic<int64_t> asked = 0;
    const Path metrics = tiny_.folder(name) / "metrics.jsonl";
    // Called by each rank after each step.
    train_on_threads({.config = tiny_.config(sets + more, name), .files = &quick}, ranks, [&] {
      return stop_at > 0 && std::filesystem::exists(metrics) && ++asked > (stop_at - 1) * ranks;
    });
    return at_each_step(tiny_.folder(name), "loss");
  }
  static void expect_near(const std::vector<double>& many, const std::vector<double>& one) {
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 2e-3) << "step " << i + 1;
  }

  TinyRun tiny_;
};

TEST_P(RanksOfOptimizer, TrainAsOne) {
  const auto one = losses("one", 1, {});
  for (const char* zero : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(zero);
    expect_near(losses(std::string("zero") + zero, 3, {std::string("parallel.zero=") + zero}), one);
  }
}

TEST_P(RanksOfOptimizer, ResumeInAnotherLayout) {
  const auto whole = losses("whole", 1, {});
  losses("cut", 3, {"parallel.zero=2"}, 3);
  std::filesystem::copy(tiny_.folder("cut"), tiny_.folder("cut-one"),
                        std::filesystem::copy_options::recursive);
  expect_near(losses("cut", 2, {"parallel.zero=3"}), whole);
  expect_near(losses("cut-one", 1, {}), whole);
}

INSTANTIATE_TEST_SUITE_P(All, RanksOfOptimizer,
                         testing::Values("adamw", "muon", "lion", "adafactor", "adamw8bit", "adopt"));

// Quantization blocks cover a tensor of the files, which may have several segments: GPT-2's c_attn is q, k
// and v. Sharding each segment would give a rank other rows than the blocks that checkpoints store.
TEST(RanksWith8BitStates, ResumeWithStatesOfWholeTensors) {
  const TinyRun tiny;
  const auto losses = [&](const std::string& name, int ranks, const Sets& more, int64_t stop_at = -1) {
    std::string text = tiny.toml(name);
    text.replace(text.find("llama3"), 6, "gpt2");
    text.erase(text.find("num_key_value_heads = 2\n"), 24);
    const Sets sets{"optimizer.name='adamw8bit'", "optimizer.adamw8bit.min_elements=256",
                    "training.micro_batch_size=1"};
    tiny.train_ranks(config::parse_run_config(text, "RUN.toml", sets + more), ranks, stop_at);
    return at_each_step(tiny.folder(name), "loss");
  };
  const auto one = losses("one", 1, {});
  const auto expect_near = [&](const std::vector<double>& many) {
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 2e-4 * one[i]) << "step " << i + 1;
  };
  // Two ranks divide each segment, three do not.
  for (const char* zero : {"1", "3"}) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(std::string("zero ") + zero + " on " + std::to_string(ranks));
      const std::string name = std::string("zero") + zero + "-" + std::to_string(ranks);
      losses(name, ranks, {std::string("parallel.zero=") + zero}, 3);
      expect_near(losses(name, 1, {}));
    }
  }
}

// Recompute, resharding and prefetching of weights, and the progress thread change no bit.
TEST(RanksAndMemory, OptionsChangeNoBit) {
  const TinyRun tiny;
  FaultyFileSystem quick;
  const auto run = [&](const std::string& name, const Sets& sets) {
    train_on_threads({.config = tiny.config(Sets{"parallel.zero=3"} + sets, name), .files = &quick}, 2,
                     [] { return false; });
    return bits_of(tiny.folder(name), 6);
  };
  const auto plain = run("plain", {"memory.recompute=\"none\""});
  expect_same_bits(plain, run("again", {"memory.recompute=\"none\""}));
  expect_same_bits(plain, run("full", {"memory.recompute=\"full\""}));
  expect_same_bits(plain, run("kept", {"memory.recompute=\"none\"", "parallel.reshard_after_forward=false"}));
  expect_same_bits(plain, run("ahead", {"memory.recompute=\"none\"", "parallel.prefetch=2"}));
  expect_same_bits(plain, run("thread", {"memory.recompute=\"full\"", "parallel.progress=\"thread\""}));
}

}  // namespace
}  // namespace strata::training
