// What keeps experts busy, against transformers and against the papers' formulas as
// tools/golden/make_model_golden.py has them.
#include <gtest/gtest.h>

#include <numeric>

#include "fixtures/golden_model.h"

namespace strata::train {
namespace {

using namespace golden;
using Balance = models::Experts::Balance;

class Experts : public testing::TestWithParam<const char*> {};

// A step of the golden batch, with these settings of the experts.
std::unique_ptr<Executor> step_with(Golden& golden, const std::function<void(models::Experts&)>& set,
                                    int64_t micro_batches = 1) {
  set(golden.model.experts);
  const int64_t sequences = kBatch / micro_batches;
  auto executor = make_executor(golden, {train_request(golden, sequences, micro_batches)});
  for (int64_t i = 0; i < micro_batches; ++i) fill_plain(golden, *executor, i * sequences, sequences, i);
  executor->run_micro_batches(0);
  return executor;
}

double mean_of(const Executor& executor, const char* sum) {
  return executor.read<double>(sum) / static_cast<double>(executor.read<int64_t>("token_count"));
}

TEST_P(Experts, PooledLossAndItsGradientsAreThoseOfTransformers) {
  Golden golden(GetParam());
  const double coefficient = models::read_config_json(checkpoint::read_config_json(golden.folder), "golden")
                                 .experts.balance_coefficient;
  ASSERT_GT(coefficient, 0);
  const auto executor = step_with(golden, [&](models::Experts& experts) {
    experts.balance_coefficient = coefficient;
    experts.balance = Balance::kMicroBatch;
    experts.pool_layers = true;
  });
  EXPECT_NEAR(mean_of(*executor, "balance_loss_sum"), coefficient * golden.floats("balanced/aux_loss")[0],
              1e-6);
  EXPECT_NEAR(mean_loss(*executor), golden.floats("loss")[0], 2e-5);
  int compared = 0;
  for (const auto& [name, entry] : golden.source.tensors) {
    const std::string prefix = "balanced/grad/";
    if (!name.starts_with(prefix)) continue;
    const auto wanted = golden.floats(name);
    EXPECT_LT(distance(gradient_of(golden, *executor, name.substr(prefix.size())), wanted),
              1e-4 * scale_of(wanted))
        << name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

TEST_P(Experts, LossesByLayerAreThoseOfThePapers) {
  Golden golden(GetParam());
  for (const auto& [name, balance] :
       {std::pair{"balanced/sequence", Balance::kSequence}, {"balanced/micro_batch", Balance::kMicroBatch}}) {
    const auto executor = step_with(golden, [&](models::Experts& experts) {
      experts.balance_coefficient = 1;
      experts.z_coefficient = 1;
      experts.balance = balance;
    });
    EXPECT_NEAR(mean_of(*executor, "balance_loss_sum"), golden.floats(name)[0], 1e-5) << name;
    EXPECT_NEAR(mean_of(*executor, "router_z_loss_sum"), golden.floats("balanced/z_loss")[0], 1e-4);
  }
}

// Over sequences the loss is the same however the batch is cut; over micro-batches it is not.
TEST_P(Experts, OnlyTheLossOfSequencesDoesNotHangOnTheCut) {
  Golden golden(GetParam());
  for (const Balance balance : {Balance::kSequence, Balance::kMicroBatch}) {
    const auto set = [&](models::Experts& experts) {
      experts.balance_coefficient = 1;
      experts.balance = balance;
    };
    const double whole = mean_of(*step_with(golden, set), "balance_loss_sum");
    const double cut = mean_of(*step_with(golden, set, 2), "balance_loss_sum");
    if (balance == Balance::kSequence) {
      EXPECT_NEAR(cut, whole, 1e-6 * whole);
    } else {
      EXPECT_GT(std::abs(cut - whole), 1e-4 * whole);
    }
  }
}

TEST_P(Experts, EveryTokenIsCountedOnceForEachOfItsExperts) {
  Golden golden(GetParam());
  for (const bool forced : {false, true}) {
    const auto executor = step_with(
        golden, [&](models::Experts& experts) { experts.route.force_balanced = forced; }, 2);
    const models::Experts& experts = golden.model.experts;
    for (int64_t layer = 0; layer < golden.model.layers; ++layer) {
      if (!experts.at(layer)) continue;
      const auto counts =
          executor->read_all<int64_t>("layers." + std::to_string(layer) + ".ffn.expert_tokens");
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                kBatch * kLength * experts.route.k);
      if (!forced) continue;
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 2) << "layer " << layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Experts, testing::Values("mixtral", "qwen2-moe", "qwen3-moe", "olmoe"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::train
