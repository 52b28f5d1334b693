// Answers of `strata scale`: published optima, corrections, given sizes, and contradictory requests.
#include "plan/scale_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/amount.h"

namespace strata::planning {
namespace {

constexpr double kGopher = 5.76e23;  // FLOPs

template <typename Run>
std::string refusal_of(const Run& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a ConfigError";
  return "";
}
std::string refusal_of(const ScaleRequest& request) {
  return refusal_of([&] { answer_scale(request); });
}
void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Amount, AsPeopleWriteThem) {
  EXPECT_EQ(parse_count("--params", "7B"), 7e9);
  EXPECT_EQ(parse_count("--params", " 70 B "), 70e9);
  EXPECT_EQ(parse_count("--tokens", "1.4T"), 1.4e12);
  EXPECT_EQ(parse_count("--tokens", "1_000k"), 1e6);
  EXPECT_EQ(parse_count("--tokens", "2e9"), 2e9);
  EXPECT_EQ(parse_flops("--flops", "5.76e23"), 5.76e23);
  EXPECT_EQ(parse_flops("--flops", "12 ZFLOP"), 12e21);
  EXPECT_NEAR(parse_flops("--flops", "3640 PF-days") / 3.145e23, 1, 1e-3) << "GPT-3";
}

TEST(Amount, RejectsWhatIsNoAmount) {
  for (const char* text : {"", "-7B", "7X", "B", "inf", "nan", "0", "1e999", "7BB", "0x10"}) {
    expect_parts(refusal_of([&] { parse_count("--params", text); }),
                 {"[--params]", "expected a number above 0"});
  }
  expect_parts(refusal_of([] { parse_flops("--flops", "7B"); }), {"[--flops]", "\"7B\"", "PF-days"});
  expect_parts(refusal_of([] { parse_number("--mfu", "1.2", 0, 1, "a fraction"); }),
               {"[--mfu]", "a fraction"});
}

// The table of optima at 5.76e23 FLOPs: the default is the replication, which is printed with both sets that
// it corrects.
TEST(Scale, AnswersWithTheReplicationAndThePaper) {
  const ScaleAnswer answer = answer_scale({.flops = kGopher});
  EXPECT_EQ(answer.law, "chinchilla");
  EXPECT_NEAR(answer.params.value / 1e9, 72.3, 0.06);
  EXPECT_NEAR(answer.tokens.value / 1e12, 1.33, 0.006);
  const auto other = [&](const char* law) {
    const auto found = std::find_if(answer.others.begin(), answer.others.end(),
                                    [&](const OtherAnswer& one) { return one.law == law; });
    EXPECT_NE(found, answer.others.end()) << law;
    return *found;
  };
  EXPECT_NEAR(other("chinchilla-paper").params / 1e9, 32.2, 0.06);
  EXPECT_NEAR(other("chinchilla-tex").params / 1e9, 40.3, 0.06);
  EXPECT_FALSE(other("chinchilla-tex").corrects);
  const std::string text = to_text(answer);
  expect_parts(text, {"72.2B", "32.2B", "40.3B", "1.8172", "406.4 / N^0.34", "2.3 decades"});
  // From the other side, the paper's set names its correction.
  const ScaleAnswer paper = answer_scale({.flops = kGopher, .law = "chinchilla-paper"});
  ASSERT_EQ(paper.others.size(), 1u);
  EXPECT_TRUE(paper.others[0].corrects);
  EXPECT_NEAR(paper.others[0].params / 1e9, 72.3, 0.06);
}

TEST(Scale, JsonHasThePublicKeys) {
  const auto of_flops = json_of(answer_scale({.flops = kGopher}));
  for (const char* key : {"law", "params", "tokens", "loss", "low", "high"})
    EXPECT_TRUE(of_flops.contains(key));
  EXPECT_LT(of_flops["low"].get<double>(), of_flops["params"].get<double>());
  EXPECT_GT(of_flops["high"].get<double>(), of_flops["params"].get<double>());
  EXPECT_EQ(of_flops["interval_of"], "params");
  const auto of_params = json_of(answer_scale({.params = 70e9}));
  EXPECT_EQ(of_params["params"], 70e9);
  EXPECT_LT(of_params["low"].get<double>(), of_params["tokens"].get<double>());
  EXPECT_EQ(of_params["interval_of"], "tokens");
  const auto rule = json_of(answer_scale({.flops = 1e20, .law = "rule-of-20"}));
  EXPECT_TRUE(rule["low"].is_null() && rule["loss"].is_null());
}

TEST(Scale, TwoNumbersAreAModel) {
  const ScaleAnswer llama = answer_scale({.params = 8.03e9, .tokens = 15e12});
  EXPECT_NEAR(llama.flops, 6 * 8.03e9 * 15e12, 1e12);
  ASSERT_TRUE(llama.overtraining);
  EXPECT_NEAR(llama.overtraining->tokens_per_param, 1868, 1);
  EXPECT_NEAR(*llama.loss, 1.8172 + 482.01 * std::pow(8.03e9, -0.3478) + 2085.43 * std::pow(15e12, -0.3658),
              1e-12);
  EXPECT_TRUE(json_of(llama)["low"].is_null()) << "nothing is predicted but the loss";
  // Each pair of numbers determines the third.
  const ScaleAnswer same = answer_scale({.flops = llama.flops, .tokens = 15e12});
  EXPECT_NEAR(same.params.value / 8.03e9, 1, 1e-12);
  EXPECT_EQ(answer_scale({.flops = llama.flops, .params = 8.03e9}).overtraining->token_multiple,
            llama.overtraining->token_multiple);
  // Kaplan's law has a loss for any size; approach 1 has none.
  EXPECT_NEAR(*answer_scale({.params = 1e9, .tokens = 1e30, .law = "kaplan"}).loss, std::pow(8.8e4, 0.076),
              1e-3);
  expect_parts(refusal_of({.params = 1e9, .tokens = 1e10, .law = "chinchilla-1"}),
               {"[--law]", "chinchilla-1", "chinchilla-tex"});
}

TEST(Scale, ContradictionsNameBothOptions) {
  expect_parts(refusal_of(ScaleRequest{}), {"--flops", "--params", "--tokens"});
  expect_parts(refusal_of({.flops = 1e21, .params = 1e9, .tokens = 1e9}),
               {"--flops", "1e21", "--params 1.00B", "--tokens 1.00B", "6e18"});
  expect_parts(refusal_of({.flops = 1e21, .law = "kaplan", .unique_tokens = 1e9}),
               {"[--unique-tokens]", "--law kaplan", "data-constrained"});
  expect_parts(refusal_of({.params = 1e9, .unique_tokens = 1e9, .experts = 8.0}),
               {"[--experts]", "--unique-tokens"});
  expect_parts(refusal_of({.flops = 1e21, .inference_tokens = 1e12, .unique_tokens = 1e9}),
               {"[--unique-tokens]", "--inference-tokens"});
  expect_parts(refusal_of({.flops = 1e21, .law = "kaplan", .inference_tokens = 1e12}),
               {"[--inference-tokens]", "--law kaplan"});
  expect_parts(refusal_of({.flops = 1e21, .experts = 8.0}), {"[--experts]", "--flops"});
  expect_parts(refusal_of({.params = 1e9, .unique_tokens = 1e9}), {"[--unique-tokens]", "--params"});
  expect_parts(refusal_of({.flops = 1e21, .law = "data-constrained"}), {"--unique-tokens"});
  expect_parts(refusal_of({.flops = 1e21, .law = "chinchila"}), {"did you mean \"chinchilla\"?"});
  expect_parts(refusal_of({.flops = 1e21, .learning_rate = 1e-3}), {"[--lr]", "--lr-batch"});
  expect_parts(refusal_of({.flops = 1e21, .tuned_batch = 1e6}), {"[--lr-batch]", "--lr"});
  expect_parts(refusal_of([] { answer_all({.flops = 1e21, .experts = 8.0}); }), {"[--experts]", "--law all"});
}

TEST(Scale, AllLawsInOneTable) {
  const std::vector<ScaleAnswer> answers = answer_all({.flops = kGopher});
  EXPECT_EQ(answers.size(), allocation_laws().size());
  const std::string table = table_of(answers);
  for (const AllocationLaw& law : allocation_laws()) expect_parts(table, {std::string(law.name).c_str()});
  // Only laws with a loss answer for a given model.
  EXPECT_EQ(answer_all({.params = 1e9, .tokens = 1e10}).size(), 4u);
}

// Muennighoff et al., figure 1: four epochs are almost as good as new data; far more are not.
TEST(Scale, RepeatedDataIsWorthLess) {
  const ScaleAnswer scarce = answer_scale({.flops = 1e22, .unique_tokens = 10e9});
  const ScaleAnswer enough = answer_scale({.flops = 1e22, .unique_tokens = 1e13});
  EXPECT_EQ(scarce.law, "data-constrained");
  EXPECT_GT(*scarce.loss, *enough.loss);
  EXPECT_LT(*scarce.effective_tokens, scarce.tokens.value);
  EXPECT_EQ(*enough.effective_tokens, enough.tokens.value);
  EXPECT_NEAR(*enough.loss, *enough.unlimited_loss, 1e-12);
  const ScaleAnswer four = answer_scale({.params = 8.7e9, .tokens = 178e9, .unique_tokens = 178e9 / 4});
  EXPECT_LT(*four.loss / *four.unlimited_loss, 1.01);
  EXPECT_NEAR(json_of(four)["epochs"].get<double>(), 4, 1e-9);
}

TEST(Scale, MixturesOfExperts) {
  const ScaleAnswer fine = answer_scale({.flops = 1e22, .granularity = 16.0});
  const ScaleAnswer coarse = answer_scale({.flops = 1e22, .granularity = 1.0});
  EXPECT_LT(*fine.loss, *coarse.loss);
  EXPECT_GT(*coarse.dense_flops, 1e22) << "a dense model needs more";
  EXPECT_NEAR(*fine.total_params / fine.params.value, 43, 0.01);
  const ScaleAnswer routed = answer_scale({.params = 1e9, .experts = 64.0});
  EXPECT_GT(*routed.dense_params, 2e9);
  EXPECT_LT(*routed.dense_params, 10e9);
  EXPECT_LT(*routed.loss, *answer_scale({.params = 1e9, .experts = 8.0}).loss);
}

// Sardana et al., figure 1.
TEST(Scale, InferenceMakesTheBestModelSmaller) {
  const ScaleAnswer answer =
      answer_scale({.params = 13e9, .law = "chinchilla-tex", .inference_tokens = 2e12});
  ASSERT_TRUE(answer.lifetime);
  EXPECT_NEAR(answer.lifetime->model.params / 1e9, 7, 0.7);
  EXPECT_NEAR(json_of(answer)["lifetime"]["saved_fraction"].get<double>(), 0.17, 0.015);
}

TEST(Scale, BatchesAndLearningRates) {
  const ScaleAnswer answer = answer_scale({.params = 1e9,
                                           .batch = 2e6,
                                           .measured_batch = MeasuredBatch{1e6, 10e9},
                                           .learning_rate = 3e-4,
                                           .tuned_batch = 0.5e6,
                                           .width_multiple = 4.0});
  const double critical = 1e6 * std::pow(answer.tokens.value / 10e9, 0.47);
  EXPECT_NEAR(*answer.batches.critical, critical, 1e-3);
  EXPECT_NEAR(*answer.batches.step_multiple, 1 + critical / 2e6, 1e-9);
  EXPECT_NEAR(*answer.batches.token_multiple, 1 + 2e6 / critical, 1e-9);
  EXPECT_NEAR(*answer.batches.learning_rate, 3e-4 * std::sqrt((1 + critical / 0.5e6) / (1 + critical / 2e6)),
              1e-12);
  EXPECT_EQ(answer.batches.width->matrix_learning_rate, 0.25);
  // Without a measured one, Kaplan's from the loss.
  const ScaleAnswer plain = answer_scale({.flops = 1e21});
  EXPECT_NEAR(*plain.batches.critical, 2e8 * std::pow(*plain.loss, -1 / 0.21), 1);
  EXPECT_EQ(plain.batches.predictions.size(), hyperparameter_laws().size());
  expect_parts(
      refusal_of(
          {.flops = 1e21, .law = "chinchilla-1", .batch = 1e6, .learning_rate = 1e-3, .tuned_batch = 1e5}),
      {"[--lr]", "--critical-batch"});
}

}  // namespace
}  // namespace strata::planning
