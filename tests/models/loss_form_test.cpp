// Both forms of the loss on whole models of every family: the same bits in loss and gradients.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "fixtures/op_tensors.h"
#include "models/head.h"

namespace strata::models {
namespace {

using graph::Role;
using graph::ValueId;

// Two chunks of tokens.
constexpr int64_t kSequences = 20, kLength = 32;

struct Setting {
  ModelConfig model;
  DType activations = DType::kF32;
  bool trains = true;
  int64_t every = 6;  // 1 in `every` tokens has no target; below 0: only 1 in -every has one
};

graph::Graph graph_of(const Setting& setting, LossForm form) {
  graph::Graph graph;
  const bool source = setting.model.architecture == Architecture::kEncoderDecoder;
  layers::Context context{
      .graph = graph,
      .rows = {.length = kLength, .sequences = kSequences, .encoder_length = source ? kLength : 0},
      .settings = {.activations = setting.activations,
                   .trains_indexer = setting.trains && setting.model.indexer.has_value()}};
  layers::add_batch(context);
  const Hidden hidden = setting.model.family->build(setting.model, context);
  Losses losses = add_losses(context, hidden, !setting.trains, form);
  for (const ValueId sum : context.results.losses) losses.all.push_back({.sum = sum, .in_main_terms = true});
  if (setting.trains) graph::differentiate(graph, losses.all);
  return graph;
}

// One document per sequence, and random weights.
void fill(device::OpRun& run, const Setting& setting) {
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const graph::Value& value = run.graph().value(id);
    if (value.role != Role::kInput && value.role != Role::kParameter) continue;
    uint64_t stream = 7;
    for (const char letter : value.name) stream = stream * 31 + static_cast<uint64_t>(letter);
    for (int64_t i = 0; i < value.shape.elements(); ++i) {
      double number = 0.3 * ops::pseudo_random(stream + static_cast<uint64_t>(i));
      if (value.dtype == DType::kI32) {
        const bool ids = value.name.ends_with("tokens") || value.name == "targets";
        const int64_t id_of_token = (i * 7919 + 3) % setting.model.vocab_size;
        number = static_cast<double>(ids ? id_of_token : value.name == "positions" ? i % kLength : 0);
        const bool marked = i % std::abs(setting.every) == 1;
        if (value.name == "targets" && marked == (setting.every > 0)) number = -1;
      }
      device::put_element(value.dtype, run.data(id), i, number);
    }
  }
}

// Gradients and metrics by name, as bytes.
std::map<std::string, std::string> results_of(const Setting& setting, LossForm form) {
  device::OpRun run(graph_of(setting, form), device::cpu_bindings(), ops::one_thread());
  fill(run, setting);
  run.encode();
  run.run();
  std::map<std::string, std::string> results;
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const graph::Value& value = run.graph().value(id);
    if (value.role == Role::kGradient || value.role == Role::kMetric)
      results[value.name] =
          std::string(reinterpret_cast<const char*>(run.data(id)), static_cast<size_t>(value.bytes()));
  }
  return results;
}

void expect_same_bits(const Setting& setting) {
  const auto fused = results_of(setting, LossForm::kFused), split = results_of(setting, LossForm::kSplit);
  ASSERT_EQ(fused.size(), split.size());
  double sum = 0;
  std::memcpy(&sum, fused.at("loss_sum").data(), sizeof sum);
  EXPECT_GT(sum, 0);
  for (const auto& [name, bytes] : fused)
    EXPECT_TRUE(split.contains(name) && split.at(name) == bytes) << name;
}

class LossForms : public testing::TestWithParam<std::string> {
 protected:
  ModelConfig model() const {
    const Path path = Path(STRATA_GOLDEN_MODELS) / GetParam() / "config.json";
    return read_config_json(read_file(path), path.string());
  }
};

TEST_P(LossForms, GiveTheSameGradients) {
  expect_same_bits({.model = model()});
}

TEST_P(LossForms, GiveTheSameGradientsInBf16WithFewTargets) {
  expect_same_bits({.model = model(), .activations = DType::kBF16, .every = -9});
}

TEST_P(LossForms, GiveTheSameLossOfEachToken) {
  expect_same_bits({.model = model(), .trains = false});
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_GOLDEN_MODELS)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, LossForms, testing::ValuesIn(golden_models()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The split form's forward has no layer, so recompute does not affect it, like the fused form.
TEST(LossForm, SplitHasSeparatePhases) {
  const Path path = Path(STRATA_GOLDEN_MODELS) / "llama-tied" / "config.json";
  const Setting setting{.model = read_config_json(read_file(path), path.string())};
  std::map<std::string_view, graph::Phase> phases;
  const graph::Graph graph = graph_of(setting, LossForm::kSplit);
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->family != "loss") continue;
    EXPECT_TRUE(phases.emplace(node.op->name, node.phase).second) << node.op->name;
    EXPECT_EQ(node.layer, graph::kNone) << node.op->name;
  }
  const std::map<std::string_view, graph::Phase> wanted{
      {"cross_entropy_statistics", graph::Phase::kForward},
      {"cross_entropy_loss", graph::Phase::kForward},
      {"cross_entropy_loss_grad", graph::Phase::kInputGrad},
      {"cross_entropy_grad_input", graph::Phase::kInputGrad},
      {"cross_entropy_grad_weight", graph::Phase::kWeightGrad}};
  EXPECT_EQ(phases, wanted);
}

}  // namespace
}  // namespace strata::models
