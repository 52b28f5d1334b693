// µP: against models that the authors' package trained (tools/golden/make_mup_golden.py), and a coordinate
// check.
#include "models/parametrization.h"

#include <numeric>

#include "config/resolve.h"
#include "device/cpu/device.h"
#include "fixtures/golden_model.h"
#include "program/initialize.h"
#include "program/update.h"

namespace strata::train {
namespace {

using namespace golden;

constexpr float kTinyEps = 1e-12f;  // folded multipliers scale gradients

std::unique_ptr<Executor> train_executor(const models::ModelConfig& model, const config::RunConfig& config,
                                         const std::vector<program::Request>& requests) {
  program::CompileOptions options;
  options.model = model;
  options.rule_of = config::optimizer_rules(config, model);
  options.cache_capacity = 64;
  options.target = device::cpu_target(compute_threads());
  return std::make_unique<Executor>(program::compile(requests, options),
                                    device::make_cpu_device(compute_threads()));
}

std::vector<program::Request> train_and_generate() {
  auto requests = inference::generation_requests(kLength);
  requests.insert(requests.begin(), {.kind = Kind::kTrain, .sequences = kBatch, .sequence_length = kLength});
  return requests;
}

// One step of AdamW without clipping; returns the loss before it.
double step(Executor& executor, const int32_t* tokens, float lr) {
  fill_stream(executor, 0, tokens, 0, kBatch, 0);
  program::write_hyper(executor, {.lr = lr, .eps = kTinyEps});
  executor.run_micro_batches(0);
  const double loss = mean_loss(executor);
  executor.run(0, {Segment::kUpdate});
  executor.run(0, {Segment::kEncode});
  return loss;
}

// Of the last of the first sequence's tokens.
std::vector<float> last_logits(Executor& executor, const int32_t* tokens, int64_t vocabulary) {
  std::vector<int32_t> positions(kLength);
  std::iota(positions.begin(), positions.end(), 0);
  executor.write_batch(1, "tokens", 0, std::vector(tokens, tokens + kLength));
  executor.write_batch(1, "positions", 0, positions);
  executor.write("cache_position", int32_t{0});
  executor.write("last_row", static_cast<int32_t>(kLength - 1));
  executor.run_script(1);
  auto logits = executor.read_all<float>("logits");
  logits.resize(static_cast<size_t>(vocabulary));
  return logits;
}

class MupGolden : public testing::TestWithParam<const char*> {};

TEST_P(MupGolden, TrainsAsTheAuthorsPackage) {
  Golden golden((Path(STRATA_MUP) / GetParam()).string());
  const auto sizes = golden.integers("sizes");
  golden.model.mup = {.base_hidden_size = sizes[0], .base_head_dim = sizes[1]};
  ASSERT_EQ(models::mup_faults(golden.model), std::vector<std::string>{});
  auto executor = train_executor(golden.model, {}, train_and_generate());
  program::initialize_weights(*executor, 1);
  checkpoint::load_hugging_face(golden.folder, golden.model, *executor);
  executor->run(0, {Segment::kEncode});
  const auto tokens = golden.integers("tokens");
  const auto losses = golden.floats("loss");
  for (size_t i = 0; i < losses.size(); ++i) {
    const int32_t* batch = tokens.data() + i * kBatch * (kLength + 1);
    EXPECT_NEAR(step(*executor, batch, 2e-3f), losses[i], 5e-5) << "step " << i;
  }
  const auto wanted = golden.floats("logits");
  const int64_t vocabulary = golden.model.vocab_size;
  const auto found = last_logits(*executor, tokens.data(), vocabulary);
  for (int64_t v = 0; v < vocabulary; ++v) {
    EXPECT_NEAR(found[static_cast<size_t>(v)], wanted[static_cast<size_t>((kLength - 1) * vocabulary + v)],
                2e-3)
        << v;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MupGolden, testing::Values("llama-untied", "gpt2", "qwen3", "gemma3"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

constexpr int64_t kBase = 32, kBaseHead = 8;

struct Growth {
  const char* name;
  bool tied;
  bool heads;  // more of them, else larger ones
};

models::ModelConfig tiny(const Growth& growth, int64_t width, bool mup) {
  models::ModelConfig model = models::preset("llama3-5m");
  model.vocab_size = 61;
  model.hidden_size = width;
  model.layers = 2;
  model.head_dim = growth.heads ? kBaseHead : kBaseHead * width / kBase;
  model.heads = model.kv_heads = width / model.head_dim;
  model.intermediate_size = 3 * width;
  model.tied = growth.tied;
  model.init_std = 0.08;
  if (mup) model.mup = {.base_hidden_size = kBase, .base_head_dim = growth.heads ? 0 : kBaseHead};
  return model;
}

struct Coordinates {
  double logits, values;  // mean size of what some steps add to logits, and to the values of the last layer
};

double mean_size(const std::vector<float>& after, const std::vector<float>& before) {
  double sum = 0;
  for (size_t i = 0; i < after.size(); ++i) sum += std::abs(static_cast<double>(after[i]) - before[i]);
  return sum / static_cast<double>(after.size());
}

// As the authors' package checks an implementation: coordinates of activations after some steps, over widths.
Coordinates coordinates(const models::ModelConfig& model) {
  config::RunConfig config;
  config.optimizer.weight_decay = 0;
  auto executor = train_executor(model, config, train_and_generate());
  program::initialize_weights(*executor, 5);
  executor->run(0, {Segment::kEncode});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kBatch * (kLength + 1); ++i)
    tokens.push_back(static_cast<int32_t>(1 + (i * i + 3 * i) % 60));
  const int64_t width = model.kv_heads * model.head_dim;
  const auto values = [&] {
    // The cache is no persistent value: it is seen as an operand of what reads or writes it.
    const program::Program& prefill = executor->program(1);
    const graph::ValueId id = prefill.graph.find_value("layers.1.attention.values");
    std::vector<float> cache(static_cast<size_t>(kLength * width));
    for (const program::Instruction& instruction : prefill.segment(Segment::kForward)) {
      const auto& inputs = prefill.node_of(instruction).inputs;
      const auto at = std::find(inputs.begin(), inputs.end(), id);
      if (at == inputs.end()) continue;
      executor->download_operand(1, {Segment::kForward}, instruction,
                                 static_cast<size_t>(at - inputs.begin()), cache.data(),
                                 std::ssize(cache) * 4);
      return cache;
    }
    ADD_FAILURE() << "nothing reads the cache";
    return cache;
  };
  const auto logits_before = last_logits(*executor, tokens.data(), model.vocab_size);
  const auto values_before = values();
  for (int64_t i = 0; i < 4; ++i) step(*executor, tokens.data(), 1e-2f);
  const auto logits_after = last_logits(*executor, tokens.data(), model.vocab_size);
  return {mean_size(logits_after, logits_before), mean_size(values(), values_before)};
}

class MupCoordinates : public testing::TestWithParam<Growth> {};

TEST_P(MupCoordinates, StayAcrossWidthsWithMupAlone) {
  const Coordinates base = coordinates(tiny(GetParam(), kBase, true));
  const Coordinates same = coordinates(tiny(GetParam(), kBase, false));
  EXPECT_EQ(base.logits, same.logits);
  EXPECT_EQ(base.values, same.values);
  for (const int64_t width : {4 * kBase, 16 * kBase}) {
    const Coordinates mup = coordinates(tiny(GetParam(), width, true));
    EXPECT_NEAR(mup.logits / base.logits, 1, 0.3) << width;
    EXPECT_NEAR(mup.values / base.values, 1, 0.3) << width;
    const Coordinates standard = coordinates(tiny(GetParam(), width, false));
    EXPECT_GT(standard.logits / base.logits, 2) << width;
    EXPECT_GT(standard.values / base.values, 2) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Growths, MupCoordinates,
                         testing::Values(Growth{"tied_more_heads", true, true},
                                         Growth{"untied_more_heads", false, true},
                                         Growth{"untied_larger_heads", false, false}),
                         [](const auto& growth) { return std::string(growth.param.name); });

}  // namespace
}  // namespace strata::train
