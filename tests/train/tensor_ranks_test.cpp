// Tensor and pipeline parallelism, with and without other axes, train like one rank.
#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Layout {
  const char* name;
  int replicate, shard, tensor, zero;
  bool sequence = true;
  int pipeline = 1;
  const char* schedule = "1f1b";
  int virtual_stages = 1;
  int ranks() const { return replicate * shard * tensor * pipeline; }
  Sets sets() const {
    return {fmt::format("parallel.replicate={}", replicate),
            fmt::format("parallel.shard={}", shard),
            fmt::format("parallel.tensor={}", tensor),
            fmt::format("parallel.zero={}", zero),
            fmt::format("parallel.sequence={}", sequence),
            fmt::format("parallel.pipeline={}", pipeline),
            fmt::format("parallel.schedule={}", schedule),
            fmt::format("parallel.virtual_stages={}", virtual_stages)};
  }
};
constexpr Layout kLayouts[] = {{"tensor2", 1, 1, 2, 0},
                               {"tensor2_whole_rows", 1, 1, 2, 0, false},
                               {"tensor4", 1, 1, 4, 0},
                               {"data2_tensor2", 2, 1, 2, 0},
                               {"zero1_2_tensor2", 1, 2, 2, 1},
                               {"zero3_2_tensor2", 1, 2, 2, 3},
                               {"zero2_3_tensor2_whole_rows", 1, 3, 2, 2, false},
                               {"hybrid_2x2_tensor2", 2, 2, 2, 3},
                               {"pipeline2", 1, 1, 1, 0, true, 2},
                               {"pipeline4_gpipe", 1, 1, 1, 0, true, 4, "gpipe"},
                               {"pipeline2_interleaved", 1, 1, 1, 0, true, 2, "interleaved", 2},
                               {"pipeline2_zb_h1", 1, 1, 1, 0, true, 2, "zb_h1"},
                               {"pipeline2_interleaved_zb", 1, 1, 1, 0, true, 2, "interleaved_zb", 2},
                               {"pipeline2_zbv", 1, 1, 1, 0, true, 2, "zbv"},
                               {"pipeline2_v_half", 1, 1, 1, 0, true, 2, "v_half"},
                               {"pipeline2_v_min", 1, 1, 1, 0, true, 2, "v_min"},
                               {"pipeline2_dualpipev", 1, 1, 1, 0, true, 2, "dualpipev"},
                               {"zero3_2_pipeline2", 1, 2, 1, 3, true, 2},
                               {"zero2_2_tensor2_pipeline2_zbv", 1, 2, 2, 2, true, 2, "zbv"}};

class TensorRanks : public testing::TestWithParam<Layout> {
 protected:
  // Llama with two key-value heads, each shared by two of four ranks; GPT-2 with biases and a tied head.
  std::string toml(const std::string& family, const std::string& name) const {
    std::string text = tiny_.toml(name);
    const auto put = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    if (family == "gpt2") {
      put("\"llama3\"", "\"gpt2\"");
      text.erase(text.find("num_key_value_heads"), std::string("num_key_value_heads = 2\n").size());
    }
    put("interval = \"never\"\n", "interval = \"3 steps\"\n");
    return text;
  }
  TrainResult train(const std::string& family, const std::string& name, int ranks, const Sets& sets,
                    int64_t stop_at = -1) const {
    return tiny_.train_ranks(config::parse_run_config(toml(family, name), "RUN.toml", sets), ranks, stop_at);
  }
  std::vector<double> values(const std::string& name, const std::string& key) const {
    return values_of(tiny_.folder(name), key);
  }
  void expect_near(const std::string& one, const std::string& many, double tolerance) const {
    for (const char* key : {"loss", "grad_norm", "param_norm", "eval/valid/loss"}) {
      const auto expected = values(one, key), found = values(many, key);
      ASSERT_FALSE(expected.empty()) << key;
      ASSERT_EQ(found.size(), expected.size()) << many << ", " << key;
      // Gradients of weights that have drifted apart by rounding differ more than the losses do.
      const double bound = key == std::string("grad_norm") ? 2 * tolerance : tolerance;
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], bound * std::abs(expected[i])) << many << ", " << key << ", " << i;
    }
    EXPECT_EQ(values(one, "first_sample"), values(many, "first_sample"));
  }

  const Sets held_{"data.valid_fraction=0.1"};
  TinyRun tiny_;
};

TEST_P(TensorRanks, TrainAsOne) {
  const Sets sets =
      held_ + Sets{"training.steps=30", "training.micro_batch_size=1", "checkpoint.interval=\"never\""};
  for (const std::string family : {"llama3", "gpt2"}) {
    train(family, family + "-one", 1, sets);
    train(family, family + "-many", GetParam().ranks(), sets + GetParam().sets());
    expect_near(family + "-one", family + "-many", 1e-4);
  }
}

TEST_P(TensorRanks, ResumeInAnyLayout) {
  const Sets sets = held_ + Sets{"training.micro_batch_size=1"}, mine = sets + GetParam().sets();
  train("llama3", "whole", GetParam().ranks(), mine);
  EXPECT_EQ(train("llama3", "cut", GetParam().ranks(), mine, 3).end, RunEnd::kInterrupted);
  std::filesystem::copy(tiny_.folder("cut"), tiny_.folder("cut-one"),
                        std::filesystem::copy_options::recursive);
  train("llama3", "cut", GetParam().ranks(), mine);
  expect_same_bits(bits_of(tiny_.folder("whole"), 6), bits_of(tiny_.folder("cut"), 6));
  train("llama3", "cut-one", 1, sets);
  expect_near("whole", "cut-one", 1e-4);
}

TEST_P(TensorRanks, TrainInBf16) {
  const Sets sets = held_ + Sets{"precision.compute=\"bf16\"", "checkpoint.interval=\"never\""};
  train("llama3", "one", 1, sets + Sets{"training.micro_batch_size=4"});
  train("llama3", "halves", 1, sets + Sets{"training.micro_batch_size=2"});
  train("llama3", "many", GetParam().ranks(), sets + Sets{"training.micro_batch_size=2"} + GetParam().sets());
  const auto one = values("one", "loss"), halves = values("halves", "loss"), many = values("many", "loss");
  ASSERT_EQ(many.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_LE(std::abs(many[i] - one[i]), 2 * std::abs(halves[i] - one[i]) + 2e-3) << "step " << i + 1;
}

// Optimizers that need whole matrices or tensors, and norms over all heads.
TEST_P(TensorRanks, TrainWithWholeMatrices) {
  const std::map<std::string, Sets> all{{"muon", {"optimizer.name=\"muon\""}},
                                        {"adafactor", {"optimizer.name=\"adafactor\""}},
                                        {"olmo2", {"model.family=\"olmo2\"", "model.num_key_value_heads=4"}}};
  for (const auto& [name, more] : all) {
    const Sets sets = held_ + Sets{"training.micro_batch_size=1", "checkpoint.interval=\"never\""} + more;
    train("llama3", name + "-one", 1, sets);
    train("llama3", name + "-many", GetParam().ranks(), sets + GetParam().sets());
    // Six steps amplify rounding: a build with another order of sums differed by 1.2e-4 of a gradient's norm.
    expect_near(name + "-one", name + "-many", 3e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorRanks, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return std::string(layout.param.name); });

// Heads that the ranks cannot share, and ranks that the degrees do not divide.
TEST(TensorRanksTest, IndivisibleSizesAreRefusedByName) {
  const TinyRun tiny;
  const auto refusal = [&](const Sets& sets) -> std::string {
    try {
      train_on_threads({.config = tiny.config(sets)}, 4, [] { return false; });
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string heads =
      refusal({"model.num_attention_heads=6", "model.hidden_size=48", "parallel.tensor=4"});
  for (const char* part : {"parallel.tensor", "4 ranks", "6 attention heads"})
    EXPECT_NE(heads.find(part), std::string::npos) << heads;
  const std::string left = refusal({"parallel.tensor=3", "parallel.shard=1"});
  EXPECT_NE(left.find("replicate = 1, shard = 2, tensor = 2"), std::string::npos) << left;
}

}  // namespace
}  // namespace strata::training
