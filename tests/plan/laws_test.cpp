#include "plan/laws.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "plan/batch_laws.h"
#include "plan/published_laws.h"

namespace strata::planning {
namespace {

constexpr double kChinchilla = 5.76e23;  // FLOPs

const LossLaw& loss_law(const char* name) {
  return find_allocation_law(name).loss.value();
}

// Constants, N, D and D/N at 5.76e23 FLOPs, from the table of the reference.
TEST(Chinchilla, OptimaOfThreePublishedSets) {
  struct Row {
    const char* name;
    double billions, trillions, ratio;
  };
  for (const Row& row : {Row{"chinchilla-paper", 32.2, 2.98, 93}, Row{"chinchilla-tex", 40.3, 2.38, 59},
                         Row{"chinchilla", 72.3, 1.33, 18.4}}) {
    const Allocation found = allocate_flops(find_allocation_law(row.name), kChinchilla);
    EXPECT_NEAR(found.params.value / 1e9, row.billions, 0.06) << row.name;
    EXPECT_NEAR(found.tokens.value / 1e12, row.trillions, 0.006) << row.name;
    EXPECT_NEAR(found.tokens.value / found.params.value, row.ratio, 0.5) << row.name;
  }
  EXPECT_EQ(find_allocation_law("chinchilla-paper").corrected_by, "chinchilla");
  EXPECT_EQ(allocation_laws().front().name, "chinchilla") << "the replication is the default";
}

TEST(Chinchilla, ExponentsAsPublished) {
  const auto exponent = [](const char* name) {
    return loss_law(name).beta / (loss_law(name).alpha + loss_law(name).beta);
  };
  EXPECT_NEAR(exponent("chinchilla"), 0.5126, 5e-4);
  EXPECT_NEAR(exponent("chinchilla-tex"), 0.456, 1e-3);
}

// Hoffmann et al., table 3: optimal parameters by budget according to approach 1.
TEST(Chinchilla, ApproachOneReproducesItsTable) {
  constexpr std::pair<double, double> kRows[] = {{1.92e19, 400e6}, {1.21e20, 1e9},   {1.23e22, 10e9},
                                                 {5.76e23, 67e9},  {3.85e24, 175e9}, {9.90e24, 280e9},
                                                 {3.43e25, 520e9}, {1.27e26, 1e12},  {1.30e28, 10e12}};
  for (const auto& [flops, params] : kRows)
    EXPECT_NEAR(allocate_flops(find_allocation_law("chinchilla-1"), flops).params.value / params, 1.0, 0.04);
}

TEST(Chinchilla, RuleOfTwenty) {
  const AllocationLaw& rule = find_allocation_law("rule-of-20");
  const Allocation found = allocate_flops(rule, kChinchilla);
  EXPECT_NEAR(found.params.value / 1e9, 69, 0.5);
  EXPECT_NEAR(found.tokens.value / 1e12, 1.39, 0.01);
  EXPECT_NEAR(allocate_flops(rule, 6e23).params.value / 1e9, 70.7, 0.05);
  EXPECT_NEAR(allocate_flops(rule, 6e23).tokens.value / 1e12, 1.41, 0.005);
  EXPECT_NEAR(allocate_flops(rule, 1e24).params.value / 1e9, 91, 0.5);
  EXPECT_TRUE(std::isnan(found.params.low)) << "no uncertainty was published";
}

// A guide's N = .1174 C^.4999 and D = 1.6972 C^.5001 yield 6 N D = 1.195 C.
TEST(Chinchilla, PowerLawsOfAGuideAreInconsistent) {
  const PowerLaw params{0.1174, 0.4999}, tokens{1.6972, 0.5001};
  EXPECT_NEAR(params.at(kChinchilla) / 1e9, 88.6, 0.1);
  EXPECT_NEAR(tokens.at(kChinchilla) / 1e12, 1.30, 0.005);
  EXPECT_NEAR(6 * params.at(kChinchilla) * tokens.at(kChinchilla) / kChinchilla, 1.195, 0.001);
}

TEST(Chinchilla, IntervalsWidenAwayFromTheRuns) {
  const AllocationLaw& law = find_allocation_law("chinchilla");
  const auto width = [&](double flops) {
    const Interval params = allocate_flops(law, flops).params;
    EXPECT_LT(params.low, params.value);
    EXPECT_GT(params.high, params.value);
    return params.high / params.low;
  };
  EXPECT_LT(width(1e20), width(1e24));
  EXPECT_LT(width(1e24), width(1e27));
  // Epoch AI: the 80 % interval of tokens per parameter at 1e26 FLOPs is 4 to 40. The deviation of ln D/N is
  // twice that of ln N.
  const Interval params = allocate_flops(law, 1e26).params;
  const double sigma = std::log(params.high / params.value) / 1.6449;
  EXPECT_NEAR(std::exp(2 * 2 * 1.2816 * sigma), 10.0, 0.5);
}

TEST(Chinchilla, BudgetsInFlopsParamsAndTokensAgree) {
  for (const AllocationLaw& law : allocation_laws()) {
    const Allocation found = allocate_flops(law, kChinchilla);
    EXPECT_NEAR(allocate_params(law, found.params.value).flops / kChinchilla, 1, 1e-9) << law.name;
    EXPECT_NEAR(allocate_tokens(law, found.tokens.value).flops / kChinchilla, 1, 1e-9) << law.name;
    EXPECT_NEAR(6 * found.params.value * found.tokens.value / kChinchilla, 1, 1e-12) << law.name;
  }
  EXPECT_THROW(allocate_flops(allocation_laws().front(), 0), ConfigError);
  EXPECT_THROW(allocate_tokens(allocation_laws().front(), NAN), ConfigError);
  try {
    find_allocation_law("chinchila");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"chinchilla\"?"), std::string::npos);
  }
}

TEST(Chinchilla, OptimumIsTheLowestLossOfItsBudget) {
  const LossLaw& law = loss_law("chinchilla");
  const Optimum best = optimum_for_flops(law, 1e22);
  for (const double factor : {0.8, 0.95, 1.05, 1.25})
    EXPECT_GT(law.loss(best.params * factor, best.tokens / factor), best.loss);
  const Optimum same = optimum_for_loss(law, best.loss).value();
  EXPECT_NEAR(same.params / best.params, 1, 1e-9);
  EXPECT_FALSE(optimum_for_loss(law, law.e));
  EXPECT_NEAR(tokens_for_loss(law, best.params, best.loss).value() / best.tokens, 1, 1e-9);
  EXPECT_FALSE(tokens_for_loss(law, best.params, law.loss(best.params, INFINITY) - 1e-9));
}

TEST(Overtraining, SmallModelsOnManyTokensCostMoreForTheSameLoss) {
  const LossLaw& law = loss_law("chinchilla");
  const Overtraining llama = overtraining(law, 8.03e9, 15e12);
  EXPECT_NEAR(llama.tokens_per_param, 1868, 1);
  EXPECT_GT(llama.token_multiple, 50);
  EXPECT_GT(llama.compute_multiple, 1.5);
  EXPECT_LT(llama.size_fraction, 0.5);
  const Optimum best = optimum_for_flops(law, 1e22);
  EXPECT_NEAR(overtraining(law, best.params, best.tokens).compute_multiple, 1, 1e-9);
  EXPECT_NEAR(overtraining(law, best.params, best.tokens).token_multiple, 1, 1e-9);
}

// Sardana et al., figure 1: for the quality of 13B and 2e12 inference tokens, 7B is optimal, which saves
// 1.7e22 FLOPs, 17 %.
TEST(LifetimeOptimum, ReproducesThePublishedExample) {
  const LossLaw& law = loss_law("chinchilla-tex");
  const double loss = optimum_for_params(law, 13e9).loss;
  const LifetimeOptimum found = lifetime_optimum(law, loss, 2e12).value();
  EXPECT_NEAR(found.model.params / 1e9, 7, 0.7);
  EXPECT_NEAR(found.saved_fraction, 0.17, 0.015);
  EXPECT_NEAR(found.flops / (1 - found.saved_fraction) * found.saved_fraction, 1.7e22, 0.2e22);
  // For the quality of 7B and 1e11 tokens: 6B, trained on 1.18 times the data.
  const Optimum seven = optimum_for_params(law, 7e9);
  const LifetimeOptimum small = lifetime_optimum(law, seven.loss, 1e11).value();
  EXPECT_NEAR(small.model.params / 1e9, 6, 0.3);
  EXPECT_NEAR(small.model.tokens / seven.tokens, 1.18, 0.05);
  // Without inference the training optimum is optimal.
  EXPECT_NEAR(lifetime_optimum(law, loss, 0).value().model.params / 13e9, 1, 1e-4);
  EXPECT_FALSE(lifetime_optimum(law, 1.0, 1e12));
}

TEST(Kaplan, ReproducesItsLimits) {
  const KaplanLaw& law = kaplan_laws().front().law;
  EXPECT_NEAR(law.loss(1e9, 1e30), std::pow(8.8e13 / 1e9, 0.076), 1e-3) << "eq. 1.1";
  EXPECT_NEAR(law.loss(1e30, 1e9), std::pow(5.4e13 / 1e9, 0.095), 1e-3) << "eq. 1.2";
  EXPECT_NEAR(kaplan_loss_for_flops(3.1e8 * kPetaflopDay), 1, 1e-12) << "eq. 1.3";
  const Allocation found = allocate_flops(find_allocation_law("kaplan"), kPetaflopDay);
  EXPECT_NEAR(found.params.value / 1e9, 1.3, 0.001) << "fig. 14";
  EXPECT_NEAR(3.15e23 / kPetaflopDay, 3646, 1) << "GPT-3";
  EXPECT_NEAR(kaplan_critical_batch(1.0), 2e8, 1);
  EXPECT_NEAR(kaplan_critical_batch(2.5) / (2e8 * std::pow(2.5, -4.76)), 1, 0.01);
}

// Muennighoff et al., appendix A: L = 521 / N'^.353 + 1488 / D'^.353 + 1.87, U_N = .051 U_D.
TEST(DataConstrained, ReproducesThePublishedConstants) {
  const DataConstrainedLaw& law = data_constrained_law();
  EXPECT_NEAR(law.law.a, 521, 0.5);
  EXPECT_NEAR(law.law.b, 1488, 1);
  EXPECT_NEAR(law.law.e, 1.87, 0.002);
  EXPECT_NEAR(optimum_for_tokens(law.law, 1e10).params / 1e10, 0.051, 0.0005);
  EXPECT_EQ(law.effective_tokens(1e9, 1e9), 1e9) << "one pass loses nothing";
  // Four epochs are nearly as good as new data; forty are worth little more than sixteen.
  EXPECT_GT(law.effective_tokens(1e9, 4e9), 0.9 * 4e9);
  EXPECT_LT(law.effective_tokens(1e9, 1e12), 1e9 * (1 + 15.4));
}

TEST(DataConstrained, LittleDataFavorsSmallerModelsAndMoreEpochs) {
  const DataConstrainedLaw& law = data_constrained_law();
  const Optimum free = optimum_for_flops(law.law, 1e22), enough = optimum_for_flops(law, 1e22, 1e13);
  EXPECT_EQ(free.params, enough.params);
  const Optimum tight = optimum_for_flops(law, 1e22, 1e10);
  EXPECT_LT(tight.params, free.params);
  EXPECT_GT(tight.tokens, free.tokens);
  EXPECT_GT(tight.loss, free.loss);
  for (const double factor : {0.9, 1.1})
    EXPECT_GE(law.loss(tight.params * factor, tight.tokens / factor, 1e10), tight.loss);
}

TEST(Mixtures, RoutedModelsAreWorthLargerDenseOnesUpToALimit) {
  const RoutedLaw& law = routed_law();
  EXPECT_NEAR(law.equivalent_params(1e9, 1), 1e9, 1);
  const double equivalent = law.equivalent_params(1e9, 64);
  EXPECT_GT(equivalent, 2e9);
  EXPECT_NEAR(law.loss(equivalent, 1), law.loss(1e9, 64), 1e-9);
  EXPECT_LT(law.equivalent_params(1e11, 64) / 1e11, equivalent / 1e9) << "less for large models";
  // Clark et al.: experts stop helping near 900B parameters (with unrounded coefficients).
  EXPECT_NEAR(std::log10(law.largest_useful_params()), std::log10(900e9), 0.1);
}

// Krajewski et al., abstract: mixtures trained with 1e20 FLOPs equal dense models trained with 20 times the
// FLOPs, and the multiple exceeds 40 beyond 1e25.
TEST(Mixtures, FineExpertsSaveComputeAndMoreOfItAtScale) {
  const auto multiple = [](double flops) {
    const Optimum mixture = optimum_for_flops(fine_grained_law().of_active(16), flops);
    const Optimum dense = optimum_for_loss(fine_grained_dense_law(), mixture.loss).value();
    return 6 * dense.params * dense.tokens / flops;
  };
  EXPECT_NEAR(multiple(1e20), 20, 5);
  EXPECT_GT(multiple(1e25), 1.2 * multiple(1e20));
}

TEST(Batch, NoiseScaleFromTwoBatches) {
  // |G_B|² = |G|² + tr(Σ)/B, exactly.
  const double gradient = 0.04, trace = 5.0;
  const GradientNoise found = gradient_noise(8, gradient + trace / 8, 64, gradient + trace / 64);
  EXPECT_NEAR(found.gradient_squared, gradient, 1e-12);
  EXPECT_NEAR(found.trace, trace, 1e-12);
  EXPECT_NEAR(found.batch().value(), trace / gradient, 1e-9);
  EXPECT_FALSE(gradient_noise(8, 1.0, 64, 0.01).batch()) << "only noise";
}

TEST(Batch, StepsAndTokensTradeOff) {
  for (const double batch : {0.1, 1.0, 7.0})
    EXPECT_NEAR((step_multiple(batch, 1) - 1) * (token_multiple(batch, 1) - 1), 1, 1e-12);
  EXPECT_EQ(step_multiple(1, 1), 2);
  EXPECT_EQ(most_data_ranks(10e6, 10'000), 1000) << "the batch floor of a guide";
  EXPECT_NEAR(critical_batch_at(1e12, 1e11, 1e6), 1e6 * std::pow(10, 0.47), 1);
}

// DeepSeek LLM trained 7B and 67B on 2e12 tokens at 4.2e-4 and 3.2e-4 with batches of 2304 and 4608 x 4096
// tokens.
TEST(Batch, HyperparameterLawsPredictTheirAuthorsValues) {
  const HyperparameterLaw& deepseek = hyperparameter_laws()[1];
  EXPECT_NEAR(deepseek.learning_rate.at(7e9, 2e12) / 4.2e-4, 1, 0.03);
  EXPECT_NEAR(deepseek.learning_rate.at(67e9, 2e12) / 3.2e-4, 1, 0.03);
  EXPECT_NEAR(deepseek.batch.at(7e9, 2e12) / (2304 * 4096), 1, 0.05);
  EXPECT_NEAR(deepseek.batch.at(67e9, 2e12) / (4608 * 4096), 1, 0.05);
  const HyperparameterLaw& step = hyperparameter_laws()[0];
  EXPECT_NEAR(step.batch.at(1e9, 1e11), 0.58 * std::pow(1e11, 0.571), 1);
  EXPECT_NEAR(step.learning_rate.at(1e9, 1e11), 1.79 * std::pow(1e9, -0.713) * std::pow(1e11, 0.307), 1e-9);
}

TEST(Batch, LearningRatesTransfer) {
  const WidthTransfer four = width_transfer(4);
  EXPECT_EQ(four.matrix_init_std, 0.5);
  EXPECT_EQ(four.matrix_learning_rate, 0.25);
  EXPECT_EQ(four.matrix_weight_decay, 4);
  EXPECT_EQ(four.logits, 0.25);
  // Far below the critical batch, Adam's rate grows with the square root of the batch and SGD's with the
  // batch; far above, both are constant.
  EXPECT_NEAR(transfer_learning_rate(1, 1, 4, 1e9, Optimizer::kAdam), 2, 1e-6);
  EXPECT_NEAR(transfer_learning_rate(1, 1, 4, 1e9, Optimizer::kSgd), 4, 1e-6);
  EXPECT_NEAR(transfer_learning_rate(1, 1e9, 4e9, 1, Optimizer::kAdam), 1, 1e-6);
}

}  // namespace
}  // namespace strata::planning
