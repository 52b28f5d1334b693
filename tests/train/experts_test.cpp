// Balancing losses and token counts of experts, compared with transformers and with the papers' formulas
// (tools/golden/make_model_golden.py).
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "evaluation/routing.h"
#include "fixtures/golden_model.h"
#include "program/update.h"

namespace strata::training {
namespace {

using namespace golden;
using Balance = models::Experts::Balance;

class Experts : public testing::TestWithParam<const char*> {};

// A step on the golden batch with modified settings of the experts.
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

TEST_P(Experts, PooledLossAndItsGradientsMatchTransformers) {
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

TEST_P(Experts, LossesByLayerMatchThePapers) {
  Golden golden(GetParam());
  for (const auto& [name, kind] :
       {std::pair{"balanced/sequence", Balance::kSequence}, {"balanced/micro_batch", Balance::kMicroBatch}}) {
    const Balance balance = kind;
    const auto executor = step_with(golden, [&](models::Experts& experts) {
      experts.balance_coefficient = 1;
      experts.z_coefficient = 1;
      experts.balance = balance;
    });
    EXPECT_NEAR(mean_of(*executor, "balance_loss_sum"), golden.floats(name)[0], 1e-5) << name;
    EXPECT_NEAR(mean_of(*executor, "router_z_loss_sum"), golden.floats("balanced/z_loss")[0], 1e-4);
  }
}

// One sequence per micro-batch: its probabilities are weighed by counts that include earlier micro-batches.
TEST_P(Experts, LossOfTheGlobalBatchIncludesEarlierMicroBatches) {
  Golden golden(GetParam());
  for (const auto& [name, micro_batches] :
       {std::pair{"balanced/global", int64_t{2}}, {"balanced/micro_batch", int64_t{1}}}) {
    const auto executor = step_with(
        golden,
        [](models::Experts& experts) {
          experts.balance_coefficient = 1;
          experts.balance = Balance::kGlobal;
        },
        micro_batches);
    EXPECT_NEAR(mean_of(*executor, "balance_loss_sum"), golden.floats(name)[0], 1e-5) << name;
  }
}

// The loss over sequences does not depend on the micro-batch size, the loss over micro-batches does.
TEST_P(Experts, OnlyTheLossOfSequencesIsIndependentOfMicroBatches) {
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

// Recomputation in backward counts no token twice: neither in the counts that move the router's bias, nor in
// those that the global balancing loss used in forward, although a second micro-batch was counted since then.
TEST(ExpertsRecomputed, CountTokensOnce) {
  for (const char* name : {"deepseek-v3-moe", "glm4-moe", "mixtral"}) {
    Golden golden(name);
    golden.model.experts.bias_rate = 0.25;
    golden.model.experts.balance = Balance::kGlobal;
    golden.model.experts.balance_coefficient = golden.model.experts.z_coefficient = 1;
    program::Request request = train_request(golden, 1, 2);
    for (const int32_t micro_batch : {0, 1}) request.order.push_back({Segment::kForward, micro_batch});
    for (const int32_t micro_batch : {0, 1}) request.order.push_back({Segment::kBackward, micro_batch});
    const auto after_step = [&](Recompute recompute) {
      const auto executor = make_executor(golden, {request}, recompute);
      for (int64_t i = 0; i < 2; ++i) fill_plain(golden, *executor, i, 1, i);
      program::write_hyper(*executor, {.max_grad_norm = 1, .lr = 1e-3f});
      executor->run_script(0);
      std::map<std::string, std::vector<float>> found;
      const graph::Graph& graph = executor->program(0).graph;
      for (const graph::Parameter& parameter : graph.parameters()) {
        for (const graph::ValueId id : {parameter.value, parameter.gradient})
          if (id != graph::kNone)
            found[graph.value(id).name] = executor->read_all<float>(graph.value(id).name);
      }
      for (int64_t layer = 0; layer < golden.model.layers; ++layer) {
        const std::string ffn = "layers." + std::to_string(layer) + ".ffn.";
        if (!golden.model.experts.at(layer)) continue;
        const auto counts = executor->read_all<int64_t>(ffn + "expert_tokens");
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                  kBatch * kLength * golden.model.experts.route.k);
        found[ffn + "expert_tokens"].assign(counts.begin(), counts.end());
      }
      found["balance_loss_sum"] = {static_cast<float>(executor->read<double>("balance_loss_sum"))};
      return found;
    };
    const auto kept = after_step(Recompute::kNone);
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull})
      EXPECT_EQ(after_step(recompute), kept) << name << ", " << program::name_of(recompute);
    EXPECT_EQ(kept.contains("layers.1.ffn.router.bias"), golden.model.experts.router_bias);
  }
}

// Token counts of an evaluation equal those that training computes in its program.
TEST_P(Experts, RoutingInEvaluationMatchesTraining) {
  const Golden golden(GetParam());
  const auto executor =
      make_executor(golden, {train_request(golden, kBatch, 1),
                             {.kind = Kind::kEvaluate, .sequences = kBatch, .sequence_length = kLength}});
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kBatch * kLength + 1; ++i)
    ids.push_back(static_cast<int32_t>(i * 7919 % golden.model.vocab_size));
  const auto counted = [&](std::vector<int32_t> tokens) {
    auto file = std::make_shared<const data::TokenFile>("ids", std::move(tokens), data::TokenFileOptions{});
    const int64_t count = file->tokens();
    const data::EvalWindows windows(data::TokenCorpus({{std::move(file), 0, count}}),
                                    {.sequence_length = kLength});
    return evaluation::evaluate_routing(*executor, 1, windows);
  };
  const evaluation::RoutingResult found = counted(ids);
  EXPECT_EQ(found.loss.tokens, kBatch * kLength);
  std::vector<int32_t> rows;
  for (int64_t row = 0; row < kBatch; ++row)
    rows.insert(rows.end(), ids.begin() + row * kLength, ids.begin() + (row + 1) * kLength + 1);
  fill_stream(*executor, 0, rows.data(), 0, kBatch, 0);
  executor->run_micro_batches(0);
  int64_t layers = 0;
  for (const observe::LayerTokens& layer : found.layers) {
    EXPECT_EQ(layer.tokens,
              executor->read_all<int64_t>("layers." + std::to_string(layer.layer) + ".ffn.expert_tokens"));
    ++layers;
  }
  for (int64_t layer = 0; layer < golden.model.layers; ++layer) layers -= golden.model.experts.at(layer);
  EXPECT_EQ(layers, 0) << "every layer with experts once";
  // Padding is not included.
  ids.resize(kLength + 6);
  for (const observe::LayerTokens& layer : counted(ids).layers) {
    EXPECT_EQ(std::accumulate(layer.tokens.begin(), layer.tokens.end(), int64_t{0}),
              (kLength + 5) * golden.model.experts.route.k);
  }
}

TEST(Specialisation, IsTheMutualInformationOfSourceAndExpert) {
  const auto share = [](const std::vector<std::vector<int64_t>>& sources) {
    return evaluation::specialisation_of(sources).share;
  };
  EXPECT_NEAR(share({{5, 5, 0, 0}, {0, 0, 70, 30}}), 1, 1e-12) << "the sources share no expert";
  EXPECT_NEAR(share({{5, 5, 0, 0}, {50, 50, 0, 0}}), 0, 1e-12) << "independent of the number of tokens";
  EXPECT_NEAR(share({{1, 0, 0}, {0, 1, 0}, {0, 0, 9}}), 1, 1e-12);
  EXPECT_EQ(share({{3, 4}}), 0);
  EXPECT_EQ(share({{3, 4}, {0, 0}}), 0) << "a source without tokens is ignored";
  // p = (3/4, 1/4) and (1/4, 3/4): 1 bit minus the entropy of p.
  const auto found = evaluation::specialisation_of({{3, 1}, {10, 30}});
  EXPECT_NEAR(found.information, 1 + 0.75 * std::log2(0.75) + 0.25 * std::log2(0.25), 1e-12);
  EXPECT_NEAR(found.share, found.information, 1e-12);
}

// Balancing losses of encoder and decoder, each over all its layers, per sequence; z-losses as means over
// layers.
TEST(SwitchExperts, LossesOfBothStacksMatchTransformers) {
  Golden golden("switch");
  const models::Experts own =
      models::read_config_json(checkpoint::read_config_json(golden.folder), "golden").experts;
  const auto executor = step_with(golden, [&](models::Experts& experts) {
    experts.balance_coefficient = own.balance_coefficient;
    experts.z_coefficient = own.z_coefficient;
    experts.pool_layers = true;
  });
  const auto both = [&](const char* kind) {
    return double{golden.floats(std::string("balanced/encoder_") + kind)[0]} +
           double{golden.floats(std::string("balanced/decoder_") + kind)[0]};
  };
  EXPECT_NEAR(mean_of(*executor, "balance_loss_sum"), own.balance_coefficient * both("aux"), 1e-6);
  EXPECT_NEAR(mean_of(*executor, "router_z_loss_sum"), own.z_coefficient * both("z"), 1e-6);
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
  EXPECT_GT(compared, 50);
}

INSTANTIATE_TEST_SUITE_P(Models, Experts,
                         testing::Values("mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "gpt-oss"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::training
