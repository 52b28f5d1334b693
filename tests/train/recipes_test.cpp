// Runs in fp8 and fp4: the same bits when they are stopped and resumed, with weights in bf16 and on ranks too.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "contracts/lab.h"

namespace strata::training {
namespace {

const Sets kNothingKept{"precision.keep=[]", "checkpoint.interval=\"1 steps\"", "training.steps=4"};

void expect_same_bits_resumed(const std::string& name, int ranks, const Sets& sets) {
  const TinyRun tiny;
  const auto train = [&](const std::string& folder, int64_t stop_at) {
    tiny.train_ranks(tiny.config(kNothingKept + Sets{"parallel.shard=-1"} + sets, folder), ranks, stop_at);
  };
  train("whole", -1);
  train("cut", 2);
  train("cut", -1);
  expect_same_bits(bits_of(tiny.folder("whole"), 4), bits_of(tiny.folder("cut"), 4), name);
}

TEST(Recipes, ResumeWithTheSameBits) {
  const Sets fp8{"precision.compute=\"fp8\""}, fp4{"precision.compute=\"fp4\""};
  expect_same_bits_resumed("block", 1, fp8);
  expect_same_bits_resumed("tensor, ZeRO-3", 2, fp8 + Sets{"precision.recipe=\"tensor\"", "parallel.zero=3"});
  expect_same_bits_resumed("delayed, ZeRO-3", 2,
                           fp8 + Sets{"precision.recipe=\"delayed\"", "parallel.zero=3"});
  expect_same_bits_resumed("nvfp4", 1, fp4);
  expect_same_bits_resumed(
      "row, bf16 weights, ZeRO-3", 2,
      fp8 + Sets{"precision.recipe=\"row\"", "parallel.zero=3", "precision.weights=\"bf16\""});
}

using contracts::Tensors;

// The histories of a checkpoint.
Tensors histories_of(const Path& run, int64_t step) {
  Tensors histories;
  const auto folder = run / "checkpoints" / fmt::format("step-{:08}", step);
  for (auto& [name, tensor] : contracts::tensors_in(folder, "optimizer"))
    if (name.starts_with("history_")) histories.insert({name, std::move(tensor)});
  return histories;
}

// Histories do not depend on the layout: what one rank has seen, two continue with, and the other way round.
TEST(Recipes, HistoriesContinueOnOtherLayouts) {
  const TinyRun tiny;
  const auto train = [&](const Sets& sets, int ranks, int64_t steps) {
    const Sets all = kNothingKept +
                     Sets{"precision.compute=\"fp8\"", "precision.recipe=\"delayed\"",
                          fmt::format("training.steps={}", steps)} +
                     sets;
    FaultyFileSystem quick;
    train_on_threads({.config = tiny.config(all), .accept_changes = true, .files = &quick}, ranks,
                     [] { return false; });
  };
  const std::vector<std::pair<Sets, int>> layouts{
      {{}, 1}, {{"parallel.tensor=2"}, 2}, {{"parallel.pipeline=2"}, 2}, {{}, 1}};
  Tensors before;
  for (int64_t step = 1; step <= std::ssize(layouts); ++step) {
    const auto& [sets, ranks] = layouts[static_cast<size_t>(step) - 1];
    train(sets, ranks, step);
    Tensors now = histories_of(tiny.folder(), step);
    EXPECT_EQ(now.size(), 3U * 4 * 2) << "of two layers";
    for (const auto& [name, tensor] : now) {
      const std::vector<double>& is = tensor.values;
      ASSERT_EQ(is.size(), 1025U);
      EXPECT_GT(is.back(), 0) << name;
      EXPECT_EQ(is.front(), *std::max_element(is.begin() + 1, is.end())) << name;
      if (step == 1) continue;
      ASSERT_TRUE(before.contains(name)) << name;
      const std::vector<double>& was = before.at(name).values;
      EXPECT_TRUE(std::equal(was.begin() + 2, was.end(), is.begin() + 1)) << name << " after step " << step;
    }
    before = std::move(now);
  }
}

// Another recipe is another run unless the user accepts it; then histories begin or end.
TEST(Recipes, HistoriesBeginAndEndWithTheRecipe) {
  const TinyRun tiny;
  const auto train = [&](const char* recipe, int64_t steps, bool accepts) {
    return tiny.train_with(
        {.config = tiny.config(kNothingKept + Sets{"precision.compute=\"fp8\"",
                                                   fmt::format("training.steps={}", steps),
                                                   fmt::format("precision.recipe=\"{}\"", recipe)}),
         .accept_changes = accepts});
  };
  train("tensor", 1, false);
  EXPECT_THROW(train("delayed", 1, false), ConfigError);
  train("delayed", 2, true);
  for (const auto& [name, tensor] : histories_of(tiny.folder(), 2)) {
    EXPECT_EQ(std::count(tensor.values.begin(), tensor.values.end(), 0.0), 1025 - 2) << name;
    EXPECT_EQ(tensor.values.front(), tensor.values.back()) << name;
  }
  train("tensor", 3, true);
  EXPECT_TRUE(histories_of(tiny.folder(), 3).empty());
}

}  // namespace
}  // namespace strata::training
