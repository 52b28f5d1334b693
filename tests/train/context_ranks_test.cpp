// Context parallelism, with and without other axes, trains like one rank.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Layout {
  const char* name;
  int context;
  const char* kind;
  int replicate = 1, shard = 1, tensor = 1, zero = 0;
  int ranks() const { return replicate * shard * context * tensor; }
  Sets sets() const {
    return {
        fmt::format("parallel.context={}", context),     fmt::format("parallel.context_kind=\"{}\"", kind),
        fmt::format("parallel.replicate={}", replicate), fmt::format("parallel.shard={}", shard),
        fmt::format("parallel.tensor={}", tensor),       fmt::format("parallel.zero={}", zero)};
  }
};
constexpr const char *kGather = "all_gather", *kRing = "ring", *kUlysses = "ulysses";
constexpr Layout kLayouts[] = {{"gather2", 2, kGather},
                               {"gather3", 3, kGather},
                               {"gather4", 4, kGather},
                               {"gather2_tensor2", 2, kGather, 1, 1, 2},
                               {"gather2_replicate2", 2, kGather, 2},
                               {"gather2_zero3_2", 2, kGather, 1, 2, 1, 3},
                               {"gather2_zero2_2_tensor2", 2, kGather, 1, 2, 2, 2},
                               {"ring2", 2, kRing},
                               {"ring3", 3, kRing},
                               {"ring2_tensor2", 2, kRing, 1, 1, 2},
                               {"ring2_zero3_2", 2, kRing, 1, 2, 1, 3},
                               {"ulysses2", 2, kUlysses},
                               {"ulysses2_zero1_2", 2, kUlysses, 1, 2, 1, 1}};

class ContextRanks : public testing::TestWithParam<Layout> {
 protected:
  ContextRanks() {
    // Documents of one token and of a few tokens.
    std::vector<uint16_t> ids;
    for (uint16_t i = 0; i < 2000; ++i) {
      if (i % 7 < 3) ids.push_back(static_cast<uint16_t>(1 + i * 31 % 299));
      ids.push_back(0);
    }
    put_tokens(tiny_.path("short.bin"), ids);
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.\n";
    put_file(tiny_.path("corpus.txt"), text);
  }

  // A sequence length that two, three and four ranks divide.
  std::string toml(const std::string& family, const std::string& name) const {
    std::string text = tiny_.toml(name);
    const auto put = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    put("sequence_length = 16", "sequence_length = 24");
    put("interval = \"never\"\n", "interval = \"3 steps\"\n");
    if (family != "llama3" && family != "gemma3") put("num_key_value_heads = 2\n", "");
    put("\"llama3\"", "\"" + family + "\"");
    if (family == "gemma3")
      put("num_key_value_heads = 2\n", "num_key_value_heads = 2\noverride = { sliding_window = 7 }\n");
    if (family == "t5") {
      put("vocab_size = 300", "vocab_size = 421");
      put("train.bin", "corpus.txt");
    }
    return text;
  }
  TrainResult train(const std::string& family, const std::string& name, int ranks, const Sets& sets,
                    int64_t stop_at = -1) const {
    return tiny_.train_ranks(config::parse_run_config(toml(family, name), "RUN.toml", sets), ranks, stop_at);
  }
  std::vector<double> values(const std::string& name, const std::string& key) const {
    return values_of(tiny_.folder(name), key);
  }
  // AdamW turns gradients near zero into full steps, and even replicas round them differently: later gradient
  // norms deviate ten times as much as losses.
  void expect_near(const std::string& one, const std::string& many, double bound) const {
    for (const std::string key : {"loss", "grad_norm", "param_norm", "eval/valid/loss"}) {
      const double tolerance = key == "grad_norm" ? 10 * bound : bound;
      const auto expected = values(one, key), found = values(many, key);
      ASSERT_FALSE(expected.empty()) << key;
      ASSERT_EQ(found.size(), expected.size()) << many << ", " << key;
      EXPECT_NEAR(found[0], expected[0], 1e-5 * std::abs(expected[0])) << many << ", " << key;
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i]))
            << many << ", " << key << ", " << i;
    }
    EXPECT_EQ(values(one, "first_sample"), values(many, "first_sample"));
  }

  const Sets held_{"data.valid_fraction=0.1"};
  TinyRun tiny_;
};

using ContextRanksOfEachKind = ContextRanks;

TEST_P(ContextRanks, TrainAsOne) {
  const Sets sets =
      held_ + Sets{"training.steps=30", "training.micro_batch_size=1", "checkpoint.interval=\"never\""};
  for (const std::string family : {"llama3", "gpt2", "gemma3", "t5"}) {
    if (family == "t5" && std::string(GetParam().kind) == kRing) {
      EXPECT_THAT([&] { train(family, "refused", GetParam().ranks(), sets + GetParam().sets()); },
                  testing::ThrowsMessage<ConfigError>(testing::AllOf(
                      testing::HasSubstr("parallel.context_kind"), testing::HasSubstr("layers.0.attention"),
                      testing::HasSubstr("\"all_gather\" or \"ulysses\""))));
      continue;
    }
    train(family, family + "-one", 1, sets);
    train(family, family + "-many", GetParam().ranks(), sets + GetParam().sets());
    expect_near(family + "-one", family + "-many", 1e-3);
  }
}

TEST_P(ContextRanksOfEachKind, TrainOnShortDocuments) {
  const Sets sets = held_ + Sets{"data.train=[\"" + tiny_.path("short.bin").string() + "\"]",
                                 "checkpoint.interval=\"never\""};
  for (const std::string pack : {"documents", "best_fit"}) {
    const Sets packed = sets + Sets{"data.pack=\"" + pack + "\""};
    train("llama3", pack + "-one", 1, packed);
    train("llama3", pack + "-many", GetParam().ranks(), packed + GetParam().sets());
    expect_near(pack + "-one", pack + "-many", 1e-4);
  }
}

TEST_P(ContextRanksOfEachKind, ResumeInAnyLayout) {
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

TEST_P(ContextRanksOfEachKind, TrainInBf16) {
  const Sets sets = held_ + Sets{"precision.compute=\"bf16\"", "checkpoint.interval=\"never\""};
  train("llama3", "one", 1, sets + Sets{"training.micro_batch_size=4"});
  train("llama3", "halves", 1, sets + Sets{"training.micro_batch_size=2"});
  train("llama3", "many", GetParam().ranks(), sets + Sets{"training.micro_batch_size=2"} + GetParam().sets());
  const auto one = values("one", "loss"), halves = values("halves", "loss"), many = values("many", "loss");
  ASSERT_EQ(many.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_LE(std::abs(many[i] - one[i]), 2 * std::abs(halves[i] - one[i]) + 2e-3) << "step " << i + 1;
}

std::string name_of(const testing::TestParamInfo<Layout>& layout) {
  return layout.param.name;
}
std::vector<Layout> named(const Sets& names) {
  std::vector<Layout> found;
  for (const Layout& layout : kLayouts) {
    if (std::find(names.begin(), names.end(), layout.name) != names.end()) found.push_back(layout);
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ContextRanks, testing::ValuesIn(kLayouts), name_of);
INSTANTIATE_TEST_SUITE_P(
    Layouts, ContextRanksOfEachKind,
    testing::ValuesIn(named({"gather3", "gather2_zero2_2_tensor2", "ring3", "ulysses2_zero1_2"})), name_of);

TEST(ContextRanksTest, IndivisibleSizesAreRefusedByName) {
  const TinyRun tiny;
  const auto expect_refused = [&](int ranks, const Sets& sets, const Sets& parts) {
    std::string refusal;
    try {
      train_on_threads({.config = tiny.config(sets)}, ranks, [] { return false; });
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    for (const std::string& part : parts) EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  };
  expect_refused(3, {"parallel.context=3"}, {"parallel.context", "3 ranks", "16 tokens", "12 or 18"});
  expect_refused(4, {"parallel.context=4", "parallel.context_kind=\"ulysses\""},
                 {"parallel.context", "4 ranks", "2 key-value heads", "layers.0.attention", "all_gather"});
  expect_refused(4, {"parallel.context=2", "parallel.tensor=2", "parallel.context_kind=\"ulysses\""},
                 {"context 2 x tensor 2", "2 key-value heads"});
  expect_refused(4, {"parallel.context=3", "parallel.shard=1"}, {"replicate = 1, shard = 1, context = 4"});
}

}  // namespace
}  // namespace strata::training
