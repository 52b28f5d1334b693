// Layers that predict further tokens (multi-token prediction), compared with modules written after
// DeepSeek-V3's report (tools/golden/make_mtp_golden.py); the terms of their losses; only training reads
// them.
#include <filesystem>
#include <fstream>
#include <numeric>

#include "fixtures/golden_model.h"
#include "fixtures/temporary_folder.h"
#include "inference/model_runtime.h"
#include "program/update.h"
#include "train/loss_terms.h"

namespace strata::training {
namespace {

using namespace golden;

// Writes the counts that the training loop writes before a step.
void write_terms_of(const Golden& golden, const Executor& executor, const std::vector<int32_t>& targets) {
  program::write_terms(executor, count_terms(targets, kLength, golden.model.predict_layers));
}

std::vector<int32_t> plain_targets() {
  return std::vector<int32_t>(kBatch * kLength, 1);
}

double loss_of_module(const Golden& golden, const Executor& executor, int64_t k) {
  const auto terms = executor.read<int64_t>(fmt::format("predict.{}.terms", k));
  EXPECT_EQ(executor.read<int64_t>(fmt::format("predict.{}.token_count", k)), terms) << golden.folder;
  return executor.read<double>(fmt::format("predict.{}.loss_sum", k)) / static_cast<double>(terms);
}

void expect_losses(const Golden& golden, const Executor& executor, const std::string& prefix) {
  EXPECT_NEAR(mean_loss(executor), golden.floats(prefix + "loss")[0], 2e-5);
  const auto further = golden.floats(prefix + "predict/loss");
  ASSERT_EQ(std::ssize(further), golden.model.predict_layers);
  for (size_t k = 0; k < further.size(); ++k)
    EXPECT_NEAR(loss_of_module(golden, executor, static_cast<int64_t>(k + 1)), further[k], 2e-5);
}

void expect_gradients(const Golden& golden, const Executor& executor, const std::string& prefix) {
  int compared = 0, of_modules = 0;
  const std::string module = fmt::format("model.layers.{}.", golden.model.layers);
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with(prefix)) continue;
    const auto wanted = golden.floats(name);
    EXPECT_LT(distance(gradient_of(golden, executor, name.substr(prefix.size())), wanted),
              1e-4 * scale_of(wanted))
        << name;
    ++compared;
    of_modules += name.find(module) != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(compared, 30);
  EXPECT_GT(of_modules, 10);
}

class Prediction : public testing::TestWithParam<const char*> {};

TEST_P(Prediction, LossesAndEveryGradient) {
  const Golden golden(GetParam());
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    auto executor = make_executor(golden, {train_request(golden, kBatch, 1)}, recompute);
    fill_plain(golden, *executor);
    write_terms_of(golden, *executor, plain_targets());
    executor->run_micro_batches(0);
    expect_losses(golden, *executor, "");
    expect_gradients(golden, *executor, "grad/");
  }
}

TEST_P(Prediction, MicroBatchesAddUpToTheBatch) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(golden, 1, 2)});
  for (int64_t i = 0; i < 2; ++i) fill_plain(golden, *executor, i, 1, i);
  write_terms_of(golden, *executor, plain_targets());
  executor->run_micro_batches(0);
  expect_losses(golden, *executor, "");
  expect_gradients(golden, *executor, "grad/");
}

TEST_P(Prediction, DocumentsDoNotSeeEachOther) {
  const Golden golden(GetParam());
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  fill_documents(golden, *executor);
  write_terms_of(golden, *executor, golden.integers("document/targets"));
  executor->run_micro_batches(0);
  expect_losses(golden, *executor, "document/");
  expect_gradients(golden, *executor, "document/grad/");
}

TEST_P(Prediction, ThirtyAdamWStepsFollowPyTorch) {
  const Golden golden(GetParam());
  const auto losses = golden.floats("adamw/loss"), norms = golden.floats("adamw/grad_norm"),
             further = golden.floats("adamw/predict");
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  write_terms_of(golden, *executor, plain_targets());
  for (size_t step = 0; step < losses.size(); ++step) {
    fill_step(golden, *executor, step);
    program::write_hyper(*executor, {.max_grad_norm = 1, .lr = 1e-3f});
    executor->run_micro_batches(0);
    double predicted = 0;
    for (int64_t k = 1; k <= golden.model.predict_layers; ++k)
      predicted += loss_of_module(golden, *executor, k);
    EXPECT_NEAR(mean_loss(*executor), losses[step], 2e-4) << "step " << step;
    EXPECT_NEAR(predicted / static_cast<double>(golden.model.predict_layers), further[step], 2e-4)
        << "step " << step;
    executor->run(0, {Segment::kUpdate});
    executor->run(0, {Segment::kEncode});
    EXPECT_NEAR(static_cast<double>(executor->read<float>("grad_norm")), norms[step], 1e-3 * norms[step])
        << "step " << step;
  }
}

// The weighted sum of all losses grows along its gradient at the rate of the gradient's norm, for several
// weights of the modules' losses.
TEST_P(Prediction, GradientsAreThoseOfTheWeightedSum) {
  Golden golden(GetParam());
  for (const double weight : {0.3, 2.0}) {
    golden.model.predict_weight = weight;
    auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
    fill_documents(golden, *executor);
    write_terms_of(golden, *executor, golden.integers("document/targets"));
    const auto objective = [&] {
      executor->run(0, {Segment::kEncode});
      executor->run_micro_batches(0);
      double further = 0;
      for (int64_t k = 1; k <= golden.model.predict_layers; ++k)
        further += loss_of_module(golden, *executor, k);
      return mean_loss(*executor) + weight * further / static_cast<double>(golden.model.predict_layers);
    };
    objective();
    const auto tokens = static_cast<double>(executor->read<int64_t>("token_count"));
    struct Moved {
      std::string name;
      std::vector<float> weights, gradient;
    };
    std::vector<Moved> all;
    double square = 0;
    const graph::Graph& graph = executor->program(0).graph;
    for (const graph::Parameter& parameter : graph.parameters()) {
      if (parameter.gradient == graph::kNone) continue;
      const std::string& name = graph.value(parameter.value).name;
      all.push_back({name, executor->read_all<float>(name), executor->read_all<float>("grad." + name)});
      for (float& one : all.back().gradient) {
        one /= static_cast<float>(tokens);
        square += static_cast<double>(one) * one;
      }
    }
    const auto at = [&](double step) {
      for (const Moved& one : all) {
        std::vector<float> weights = one.weights;
        for (size_t i = 0; i < weights.size(); ++i) weights[i] += static_cast<float>(step) * one.gradient[i];
        executor->write(one.name, weights);
      }
      return objective();
    };
    const double step = 1e-4;
    EXPECT_NEAR((at(step) - at(-step)) / (2 * step), square, 5e-3 * square) << weight;
  }
}

// Loading and saving use the module names of the published weights.
TEST_P(Prediction, FilesHaveThePublishedNames) {
  const Golden golden(GetParam());
  const auto executor = make_executor(golden, {train_request(golden, 1, 1)});
  const std::string last =
      fmt::format("model.layers.{}.", golden.model.layers + golden.model.predict_layers - 1);
  std::vector<std::string> names;
  for (const auto& view : checkpoint::weight_views(golden.model, *executor)) names.push_back(view.name);
  for (const char* name : {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight",
                           "input_layernorm.weight", "mlp.gate.weight", "mlp.experts.4.down_proj.weight"})
    EXPECT_NE(std::find(names.begin(), names.end(), last + name), names.end()) << last << name;
  std::vector<std::string> in_files;
  const auto files = checkpoint::open_tensor_file(golden.folder / "model.safetensors");
  for (const auto& [name, entry] : files.tensors) {
    const bool is_copy = name.ends_with(".shared_head.head.weight") || name == last + "embed_tokens.weight";
    if (!is_copy) in_files.push_back(name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, in_files);
  const std::string config = models::write_config_json(golden.model, DType::kF32);
  EXPECT_EQ(models::read_config_json(config, "written").predict_layers, golden.model.predict_layers);
}

TEST_P(Prediction, OnlyTrainingReadsTheModules) {
  const Golden golden(GetParam());
  inference::ModelRuntime runtime = inference::open_model(golden.folder.string());
  EXPECT_EQ(runtime.model.predict_layers, 0);
  program::Request request = train_request(golden, kBatch, 1);
  request.kind = Kind::kEvaluate;
  inference::load_runtime(runtime, {.compute = {.dtype = DType::kF32}, .requests = {request}});
  fill_plain(golden, *runtime.executor);
  runtime.executor->run_script(0);
  EXPECT_NEAR(mean_loss(*runtime.executor), golden.floats("loss")[0], 2e-5);
}

// Modules in config.json without weights are named; tables stored with a module must equal the model's.
TEST(PredictionFiles, AreChecked) {
  const Golden golden("deepseek-v3-mtp");
  EXPECT_TRUE(checkpoint::holds_prediction(golden.folder, golden.model));
  EXPECT_FALSE(checkpoint::holds_prediction(Path(STRATA_GOLDEN_MODELS) / "deepseek-v3-moe", golden.model));
  const auto error_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  models::ModelConfig deeper = golden.model;
  deeper.predict_layers = 2;
  const std::string missing = fmt::format("model.layers.{}.enorm.weight", golden.model.layers + 1);
  EXPECT_NE(error_of([&] { checkpoint::check_weights(golden.folder, deeper); }).find(missing),
            std::string::npos);

  const data::TemporaryFolder folder;
  for (const char* name : {"embed_tokens.weight", "shared_head.head.weight"}) {
    const Path file = folder.path() / "model.safetensors";
    std::filesystem::copy_file(golden.folder / "model.safetensors", file,
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_NO_THROW(checkpoint::open_weights(folder.path(), golden.model));
    const std::string copy = fmt::format("model.layers.{}.{}", golden.model.layers, name);
    const auto at =
        static_cast<std::streamoff>(checkpoint::open_tensor_file(file).tensors.at(copy).tensor->offset);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(at);
    bytes.put(1);
    bytes.close();
    EXPECT_NE(error_of([&] { checkpoint::open_weights(folder.path(), golden.model); }).find(copy),
              std::string::npos);
    models::ModelConfig without = golden.model;
    without.predict_layers = 0;
    EXPECT_NO_THROW(checkpoint::open_weights(folder.path(), without));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Prediction, testing::Values("deepseek-v3-mtp", "glm4-moe-mtp"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LossTerms, AreTargetsWithoutAGap) {
  // Two rows of six: in the first a document ends after the third token; in the second a token has no target.
  const std::vector<int32_t> targets{5, 5, -1, 5, 5, 5, 5, -1, -1, 5, 5, 5};
  EXPECT_EQ(count_terms(targets, 6, 3), (std::vector<int64_t>{9, 5, 2, 0}));
  EXPECT_EQ(count_terms(targets, 12, 3), (std::vector<int64_t>{9, 6, 3, 1}));
}

}  // namespace
}  // namespace strata::training
