// Generation compared with training. Every family in every precision: tests/train/models_page_test.cpp.
#include "inference/drift.h"

#include <gtest/gtest.h>

#include "fixtures/golden_model.h"

namespace strata::training {
namespace {

using namespace golden;

std::vector<inference::DriftText> one_text(const Golden& golden, int64_t prompt) {
  inference::DriftText text{.tokens = {}, .prompt = prompt};
  for (int64_t i = 0; i < kLength; ++i)
    text.tokens.push_back(static_cast<int32_t>(i * 7919 % golden.model.vocab_size));
  return {text};
}

std::unique_ptr<Executor> executor_of(const Golden& golden) {
  const auto requests = inference::drift_requests(kLength);
  auto executor = make_executor(golden, requests);
  for (size_t i = 1; i < requests.size(); ++i) executor->run(i, {Segment::kEncode});
  return executor;
}

TEST(Drift, ComparesLogitsAfterThePromptAndEachLaterToken) {
  const Golden golden("llama-untied");
  const auto executor = executor_of(golden);
  for (const int64_t prompt : {int64_t{1}, int64_t{20}, kLength}) {
    const auto drift = inference::measure_drift(*executor, *executor, one_text(golden, prompt));
    EXPECT_EQ(drift.tokens, kLength - prompt + 1);
    EXPECT_LT(drift.largest_logit, 1e-4);
    EXPECT_LT(drift.largest_kl, 1e-9);
    EXPECT_LT(drift.largest_log_probability, 1e-4);
    EXPECT_EQ(drift.other_choices, 0);
  }
}

// Generation has other weights than training.
TEST(Drift, MeasuresPlantedDrift) {
  const Golden golden("llama-untied");
  const auto trains = executor_of(golden), writes = executor_of(golden);
  const auto measured = [&] {
    writes->run(1, {Segment::kEncode});
    return inference::measure_drift(*trains, *writes, one_text(golden, 4));
  };
  const std::string name = [&] {
    const graph::Graph& graph = trains->program(0).graph;
    for (const graph::Parameter& parameter : graph.parameters()) {
      if (parameter.role == graph::ParameterRole::kHead) return graph.value(parameter.value).name;
    }
    return std::string();
  }();
  auto head = writes->read_all<float>(name);
  const auto width = static_cast<size_t>(golden.model.hidden_size);
  // All logits of generation are larger by 1/1000, and so is the largest difference relative to the largest
  // logit.
  for (float& weight : head) weight *= 1.001F;
  writes->write(name, head);
  const auto slight = measured();
  EXPECT_GT(slight.largest_logit, 1e-4);
  EXPECT_LT(slight.largest_logit, 1e-2);
  EXPECT_GT(slight.mean_kl, 1e-9);
  EXPECT_EQ(slight.other_choices, 0);
  // Pairs of tokens swap their rows of the head.
  for (float& weight : head) weight /= 1.001F;
  std::vector<float> swapped = head;
  for (size_t v = 0; v + 1 < head.size() / width; v += 2) {
    std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(v * width),
                     swapped.begin() + static_cast<std::ptrdiff_t>((v + 1) * width),
                     swapped.begin() + static_cast<std::ptrdiff_t>((v + 1) * width));
  }
  writes->write(name, swapped);
  const auto drift = measured();
  EXPECT_GT(drift.mean_kl, 1e-3);
  EXPECT_GE(drift.largest_kl, drift.mean_kl);
  EXPECT_GT(drift.other_choices, drift.tokens / 2);
  EXPECT_GT(drift.largest_log_probability, 1e-2);
}

// A model trained in fp32 that generates in bf16.
TEST(Drift, PrecisionsMayDiffer) {
  const Golden golden("gemma2");
  const auto same = drift_of(golden, DType::kF32, DType::kF32);
  const auto mixed = drift_of(golden, DType::kF32, DType::kBF16);
  EXPECT_EQ(mixed.tokens, same.tokens);
  EXPECT_GT(mixed.mean_kl, 1e3 * same.mean_kl);
  EXPECT_LT(mixed.mean_kl, 1e-2);
}

}  // namespace
}  // namespace strata::training
