// Runs in fp8 and fp4: the same bits when they are stopped and resumed, with weights in bf16 and on ranks too.
#include <gtest/gtest.h>

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
  expect_same_bits_resumed("nvfp4", 1, fp4);
  expect_same_bits_resumed(
      "row, bf16 weights, ZeRO-3", 2,
      fp8 + Sets{"precision.recipe=\"row\"", "parallel.zero=3", "precision.weights=\"bf16\""});
}

}  // namespace
}  // namespace strata::training
