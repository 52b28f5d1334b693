// Indexers of sparse attention against a script written from DeepSeek's report (tools/golden/indexer_loss.py): the loss of both
// stages, gradients, steps of the warm-up; and frozen weights.
#include <filesystem>

#include "base/error.h"
#include "cli/actions.h"
#include "fixtures/golden_model.h"
#include "fixtures/scratch_folder.h"
#include "program/update.h"

namespace strata::training {
namespace {

using namespace golden;
using Indexer = layers::Settings::Indexer;

class Indexers : public testing::TestWithParam<const char*> {};

double indexer_loss_of(const Executor& executor) {
  return executor.read<double>("indexer_loss_sum") /
         static_cast<double>(executor.read<int64_t>("token_count"));
}

TEST_P(Indexers, LossOfChosenKeysEqualsTheScripts) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  fill_plain(golden, *executor);
  executor->run_micro_batches(0);
  const double wanted = golden.floats("indexer/loss")[0];
  EXPECT_GT(wanted, 0.01);
  EXPECT_NEAR(indexer_loss_of(*executor), wanted, 1e-5 * wanted);
  fill_documents(golden, *executor);
  executor->run_micro_batches(0);
  const double of_documents = golden.floats("document/indexer/loss")[0];
  EXPECT_NEAR(indexer_loss_of(*executor), of_documents, 1e-5 * of_documents);
}

// Bits of every parameter that the warm-up must not touch.
std::map<std::string, std::vector<float>> frozen_weights(const Executor& executor) {
  std::map<std::string, std::vector<float>> all;
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (parameter.of_indexer) continue;
    const std::string& name = graph.value(parameter.value).name;
    all[name] = executor.read_all<float>(name);
  }
  return all;
}

TEST_P(Indexers, WarmupTrainsTheIndexerAlone) {
  Golden golden(GetParam());
  golden.indexer = Indexer::kDense;
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  fill_plain(golden, *executor);
  executor->run_micro_batches(0);
  EXPECT_NEAR(mean_loss(*executor), golden.floats("warmup/lm_loss")[0], 2e-5);
  const double wanted = golden.floats("warmup/loss")[0];
  EXPECT_NEAR(indexer_loss_of(*executor), wanted, 1e-5 * wanted);
  size_t compared = 0, trained = 0;
  for (const auto& [name, entry] : golden.source.tensors) {
    const std::string prefix = "warmup/grad/";
    if (!name.starts_with(prefix)) continue;
    const auto gradient = golden.floats(name);
    EXPECT_LT(distance(gradient_of(golden, *executor, name.substr(prefix.size())), gradient),
              1e-4 * std::max(norm(gradient), 1e-4))
        << name;
    ++compared;
  }
  for (const graph::Parameter& parameter : executor->program(0).graph.parameters()) {
    EXPECT_EQ(parameter.gradient != graph::kNone, parameter.of_indexer);
    trained += parameter.of_indexer ? 1 : 0;
  }
  EXPECT_EQ(compared, trained);

  const auto before = frozen_weights(*executor);
  const auto losses = golden.floats("warmup/adamw/loss"), norms = golden.floats("warmup/adamw/grad_norm");
  for (size_t step = 0; step < losses.size(); ++step) {
    fill_step(golden, *executor, step);
    program::write_hyper(*executor, {.max_grad_norm = 1, .lr = 1e-3f});
    executor->run_micro_batches(0);
    EXPECT_NEAR(indexer_loss_of(*executor), losses[step], 1e-4 * losses[step]) << "step " << step;
    executor->run(0, {Segment::kUpdate});
    executor->run(0, {Segment::kEncode});
    EXPECT_NEAR(executor->read<float>("grad_norm"), norms[step], 1e-3 * norms[step]) << "step " << step;
  }
  EXPECT_EQ(frozen_weights(*executor), before);
}

// All keys are chosen, so the model computes the same as without an indexer.
TEST(AddIndexer, AChoiceOfAllKeysReproducesTheDenseModel) {
  const ScratchFolder scratch;
  cli::AddIndexerCommand command;
  command.source = (Path(STRATA_GOLDEN_MODELS) / "deepseek-v3").string();
  command.target = scratch / "sparse";
  command.dtype = "fp32";
  command.how.dims = {.heads = 3, .dim = 10, .count = 64};
  cli::run_add_indexer(command);
  std::filesystem::copy_file(Path(command.source) / "expected.safetensors",
                             command.target / "expected.safetensors");
  const Golden golden(command.target.string());
  ASSERT_TRUE(golden.model.indexer.has_value());
  EXPECT_EQ(golden.model.indexer->count, 64);
  EXPECT_LT(logits_error(golden), 1e-4);
  EXPECT_EQ(greedy_text(golden), golden.integers("greedy/tokens"));
}

TEST(AddIndexer, NamesWhatItCannotDo) {
  const ScratchFolder scratch;
  const auto refusal = [&](const char* model, layers::IndexerDims dims) -> std::string {
    cli::AddIndexerCommand command;
    command.source = (Path(STRATA_GOLDEN_MODELS) / model).string();
    command.target = scratch / "refused";
    command.how.dims = dims;
    try {
      cli::run_add_indexer(command);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const layers::IndexerDims usual{.heads = 2, .dim = 8, .count = 8};
  EXPECT_NE(refusal("llama-untied", usual).find("found a llama3 model"), std::string::npos);
  EXPECT_NE(refusal("deepseek-v3-half", usual).find("without q_lora_rank"), std::string::npos);
  EXPECT_NE(
      refusal("deepseek-v3", {.heads = 2, .dim = 8, .count = 65}).find("index_topk is 65: expected 1 to 64"),
      std::string::npos);
  EXPECT_NE(
      refusal("deepseek-v3", {.heads = 2, .dim = 4, .count = 8}).find("index_head_dim is 4: expected 6"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch / "refused"));
}

INSTANTIATE_TEST_SUITE_P(Models, Indexers, testing::Values("deepseek-v32", "glm-moe-dsa"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace strata::training
