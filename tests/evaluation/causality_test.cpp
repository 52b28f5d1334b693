// Planted leaks are found and named; models without leaks have none.
#include "evaluation/causality.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/weights.h"
#include "leaky_model.h"
#include "program/mesh_model.h"

namespace strata::evaluation {
namespace {

using leaky::Plant;
using program::Kind;
using program::Recompute;

struct Making {
  const char* name;
  Kind kind = Kind::kTrain;
  Recompute recompute = Recompute::kNone;
  DType activations = DType::kF32;
};
constexpr Making kTrain{"train"}, kRecomputed{"recomputed", Kind::kTrain, Recompute::kFull},
    kEvaluate{"evaluate", Kind::kEvaluate};

Causality check(Plant plant, const Making& making, int64_t micro_batches = 1, int64_t positions = 12) {
  program::CompileOptions options = leaky::options_of(plant, micro_batches);
  options.recompute = making.recompute;
  options.activations = making.activations;
  program::Request request = program::tiny_request(micro_batches);
  request.kind = making.kind;
  const auto executor = leaky::make_executor(request, options);
  return check_causality(*executor, 0, {.positions = positions});
}

// A hybrid whose convolution or state runs from one document into the next.
TEST(Causality, StatesThatRunIntoTheNextDocumentAreNamed) {
  for (const auto& [plant, op] :
       {std::pair{Plant::kConvolutionRunsOn, "causal_convolution"}, {Plant::kStateRunsOn, "recurrence"}}) {
    for (const char* preset : {"gdn-30m", "mamba2-30m", "kda-30m"}) {
      for (const Making& making : {kTrain, kRecomputed, kEvaluate}) {
        program::CompileOptions options = leaky::options_of(plant);
        const models::Family* const family = options.model.family;
        options.model = program::small_model(preset);
        options.model.family = family;
        options.recompute = making.recompute;
        program::Request request = program::request_for(options.model, 6);
        request.kind = making.kind;
        if (making.kind == Kind::kEvaluate) request.micro_batches = 1;
        const auto executor = leaky::make_executor(request, options);
        const Causality found = check_causality(*executor, 0, {.positions = 12});
        ASSERT_FALSE(found.causal()) << preset;
        EXPECT_EQ(found.leaks[0].op, op) << preset;
        EXPECT_EQ(found.leaks[0].layer, 0);
        EXPECT_GE(found.leaks[0].row, found.leaks[0].changed_to) << "a row of a later document";
      }
    }
  }
}

// Keys that are chosen among all, and excluded only then, let later tokens change a row.
TEST(Causality, AChoiceBeforeTheMaskIsNamed) {
  for (const char* preset : {"dsa-30m", "glm-5"}) {
    for (const Plant plant : {Plant::kNothing, Plant::kChoiceBeforeMask}) {
      for (const Making& making : {kTrain, kRecomputed, kEvaluate}) {
        program::CompileOptions options = leaky::options_of(plant);
        const models::Family* const family = options.model.family;
        options.model = program::small_model(preset);
        options.model.family = family;
        options.recompute = making.recompute;
        program::Request request = program::request_for(options.model, 6);
        request.kind = making.kind;
        if (making.kind == Kind::kEvaluate) request.micro_batches = 1;
        const auto executor = leaky::make_executor(request, options);
        const Causality found = check_causality(*executor, 0, {.positions = 12});
        ASSERT_EQ(found.causal(), plant == Plant::kNothing) << preset << " " << making.name;
        if (found.causal()) continue;
        EXPECT_EQ(found.leaks[0].op, "leaky_choice") << preset;
        EXPECT_EQ(found.leaks[0].layer, 0);
        EXPECT_LT(found.leaks[0].row, found.leaks[0].changed_from) << "an earlier row";
      }
    }
  }
}

struct Wanted {
  const char* name;
  Plant plant;
  const char* op;
  int32_t layer;
};

class PlantedLeak : public testing::TestWithParam<std::tuple<Wanted, Making>> {};

TEST_P(PlantedLeak, IsFoundAndNamed) {
  const auto& [wanted, making] = GetParam();
  const Causality found = check(wanted.plant, making);
  ASSERT_EQ(found.leaks.size(), 1U);
  const Leak& leak = found.leaks.front();
  EXPECT_EQ(leak.op, wanted.op);
  EXPECT_EQ(leak.layer, wanted.layer);
  EXPECT_GT(leak.largest, 0);
  EXPECT_LT(leak.largest, 1e3);
  EXPECT_TRUE(leak.row < leak.changed_from || leak.row >= leak.changed_to);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedLeak,
    testing::Combine(testing::Values(Wanted{"bidirectional", Plant::kBidirectional, "attention", 2},
                                     Wanted{"off_by_one", Plant::kOffByOne, "attention", 1},
                                     Wanted{"window_ahead", Plant::kWindowAhead, "attention", 2},
                                     Wanted{"other_document", Plant::kOtherDocument, "attention", 1},
                                     Wanted{"batch_mean", Plant::kBatchMean, "leaky_batch_mean", 1},
                                     Wanted{"batch_mean_of_hidden", Plant::kBatchMeanOfHidden,
                                            "leaky_batch_mean", graph::kNone},
                                     Wanted{"positions", Plant::kPositions, "leaky_positions", graph::kNone}),
                     testing::Values(kTrain, kRecomputed, kEvaluate)),
    [](const auto& one) {
      return std::string(std::get<0>(one.param).name) + "_" + std::get<1>(one.param).name;
    });

TEST(Causality, FindsNoLeakInACausalModel) {
  for (const Making& making : {kTrain, kRecomputed, kEvaluate}) {
    const Causality found = check(Plant::kNothing, making, making.kind == Kind::kTrain ? 2 : 1, 23);
    EXPECT_TRUE(found.causal()) << making.name << ": " << found.leaks.front().value;
    EXPECT_EQ(found.positions, 23) << "all positions";
    EXPECT_GT(found.values, 20) << making.name;
  }
}

// A leak from one micro-batch to the next needs several micro-batches.
TEST(Causality, LeakBetweenMicroBatchesIsFound) {
  EXPECT_TRUE(check(Plant::kCarry, kTrain, 1).causal());
  const Causality found = check(Plant::kCarry, kTrain, 3);
  ASSERT_EQ(found.leaks.size(), 1U);
  EXPECT_EQ(found.leaks[0].op, "leaky_carry");
  EXPECT_EQ(found.leaks[0].layer, 1);
  EXPECT_GT(found.leaks[0].micro_batch, 0);
}

// Logits that depend on a later token than all rows change only the loss, because evaluation has no rows of
// logits.
TEST(Causality, LeakOfTheHeadIsFoundInTheLoss) {
  const Causality found = check(Plant::kTint, kEvaluate);
  ASSERT_EQ(found.leaks.size(), 1U);
  EXPECT_EQ(found.leaks[0].op, "linear_cross_entropy");
  EXPECT_EQ(found.leaks[0].layer, graph::kNone);
  EXPECT_TRUE(found.leaks[0].in_loss);
  EXPECT_EQ(found.unseen, std::vector<std::string>{"leaky_tint"});
}

TEST(Causality, MovementIsMeasured) {
  const Causality found = check(Plant::kBatchMeanOfHidden, kEvaluate);
  // A mean of hidden states of about 1 over 48 rows, some of which have changed.
  EXPECT_GT(found.leaks.at(0).largest, 1e-3);
  EXPECT_LT(found.leaks.at(0).largest, 2);
}

TEST(Causality, Bf16RowsAreCompared) {
  Making making = kTrain;
  making.activations = DType::kBF16;
  EXPECT_TRUE(check(Plant::kNothing, making).causal());
  const Causality found = check(Plant::kOffByOne, making);
  ASSERT_EQ(found.leaks.size(), 1U);
  EXPECT_EQ(found.leaks[0].op, "attention");
  EXPECT_EQ(found.leaks[0].layer, 1);
}

TEST(Causality, EncoderIsRefusedByName) {
  program::CompileOptions options = program::tiny_options("bert-tiny");
  program::Request request = program::tiny_request();
  request.kind = Kind::kEvaluate;
  program::Executor executor(program::compile({request}, options),
                             device::make_cpu_device(compute_threads()));
  try {
    check_causality(executor, 0, {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("bert"), std::string::npos) << error.what();
  }
}

// --- Every family, with weights from transformers

class GoldenModel : public testing::TestWithParam<const char*> {};
// In bf16: the result of an expert's row does not depend on the number of rows.
class GoldenModelOfExperts : public GoldenModel {};

void expect_causal(const std::string& name, DType activations, int64_t positions) {
  const Path folder = Path(STRATA_GOLDEN_MODELS) / name;
  program::CompileOptions options;
  options.activations = activations;
  options.model = models::read_config_json(checkpoint::read_config_json(folder), name);
  options.rule_of = [](const std::string&, graph::ParameterRole) { return optim::one_rule({}); };
  options.target = device::cpu_target(compute_threads());
  const bool encoder = options.model.architecture == models::Architecture::kEncoderDecoder;
  const program::Request train{.kind = Kind::kTrain,
                               .sequences = 2,
                               .sequence_length = 32,
                               .encoder_length = encoder ? 40 : 0,
                               .micro_batches = 2};
  program::Request evaluate = train;
  evaluate.kind = Kind::kEvaluate;
  evaluate.micro_batches = 1;
  program::Executor executor(program::compile({train, evaluate}, options),
                             device::make_cpu_device(compute_threads()));
  program::initialize_weights(executor, 1);
  checkpoint::load_hugging_face(folder, options.model, executor);
  for (const size_t index : {size_t{0}, size_t{1}}) {
    executor.run(index, {program::Segment::kEncode});
    const Causality found = check_causality(executor, index, {.positions = positions});
    EXPECT_TRUE(found.causal()) << found.leaks.front().op << " of layer " << found.leaks.front().layer
                                << ", by " << found.leaks.front().largest;
    EXPECT_GE(found.values, 6 * options.model.layers);
  }
}

TEST_P(GoldenModel, IsCausal) {
  expect_causal(GetParam(), DType::kF32, 31);
}
TEST_P(GoldenModelOfExperts, IsCausalInBf16) {
  expect_causal(GetParam(), DType::kBF16, 15);
}

const auto kName = [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(All, GoldenModelOfExperts,
                         testing::Values("mixtral", "qwen2-moe", "deepseek-v3-moe", "gpt-oss", "llama4"),
                         kName);
INSTANTIATE_TEST_SUITE_P(All, GoldenModel,
                         testing::Values("llama-untied", "llama-tied", "llama-biases-yarn", "mistral",
                                         "qwen2", "qwen3", "olmo", "olmo-clip", "olmo2", "olmo3", "smollm3",
                                         "smollm3-windows", "minimax-m2", "gemma2", "gemma3", "phi3",
                                         "gpt-neox", "gpt-neox-serial", "gpt2", "starcoder2", "stablelm",
                                         "t5", "t5-gated", "deepseek-v2", "deepseek-v3", "mixtral", "olmoe",
                                         "qwen2-moe", "qwen3-moe", "glm4-moe", "deepseek-v2-moe",
                                         "deepseek-v3-moe", "gpt-oss", "llama4", "llama4-top2", "switch",
                                         "deepseek-v3-mtp", "glm4-moe-mtp", "deepseek-v32", "glm-moe-dsa",
                                         "qwen3-next", "qwen3-5", "qwen3-5-moe", "olmo-hybrid", "kimi-linear",
                                         "mamba2", "nemotron-h", "granite-hybrid", "falcon-h1", "lfm2-moe"),
                         kName);

}  // namespace
}  // namespace strata::evaluation
