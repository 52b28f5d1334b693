// µP: a comparison with models trained by the authors' package (tools/golden/make_mup_golden.py), and a
// coordinate check.
#include "models/parametrization.h"

#include <numeric>

#include "config/resolve.h"
#include "device/cpu/device.h"
#include "fixtures/golden_model.h"
#include "optim/adamw/adamw.h"
#include "program/initialize.h"
#include "program/update.h"

namespace strata::training {
namespace {

using namespace golden;

std::unique_ptr<Executor> train_executor(const models::ModelConfig& model, config::RunConfig config,
                                         const std::vector<program::Request>& requests) {
  config.optimizer.constants.front() = optim::AdamW{.eps = 1e-12};  // folded multipliers scale gradients
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
  program::write_hyper(executor, {.lr = lr});
  executor.run_micro_batches(0);
  const double loss = mean_loss(executor);
  executor.run(0, {Segment::kUpdate});
  executor.run(0, {Segment::kEncode});
  return loss;
}

// The logits of the last token of the first sequence.
std::vector<float> last_logits(Executor& executor, const int32_t* tokens, int64_t vocabulary) {
  std::vector<int32_t> positions(kLength);
  std::iota(positions.begin(), positions.end(), 0);
  executor.upload_column(1, Column::kTokens, 0, std::vector(tokens, tokens + kLength));
  executor.upload_column(1, Column::kPositions, 0, positions);
  executor.write("cache_position", int32_t{0});
  executor.write("last_row", static_cast<int32_t>(kLength - 1));
  executor.run_script(1);
  auto logits = executor.read_all<float>("logits");
  logits.resize(static_cast<size_t>(vocabulary));
  return logits;
}

class MupGolden : public testing::TestWithParam<const char*> {};

TEST_P(MupGolden, TrainsLikeTheAuthorsPackage) {
  Golden golden((Path(STRATA_MUP) / GetParam()).string());
  const auto sizes = golden.integers("sizes");
  golden.model.mup = {.base_hidden_size = sizes[0], .base_head_dim = sizes[1]};
  ASSERT_EQ(models::mup_errors(golden.model), std::vector<std::string>{});
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
  bool heads;  // more heads; otherwise larger ones
  bool experts = false;
};

models::ModelConfig tiny(const Growth& growth, int64_t width, bool mup) {
  models::ModelConfig model = models::preset(growth.experts ? "moe-30m-a10m" : "llama3-5m");
  model.vocab_size = 61;
  model.hidden_size = width;
  model.layers = 2;
  model.head_dim = growth.heads ? kBaseHead : kBaseHead * width / kBase;
  model.heads = model.kv_heads = width / model.head_dim;
  model.intermediate_size = 3 * width;
  model.tied = growth.tied;
  model.init_std = 0.08;
  if (growth.experts) {
    model.experts.count = 8;
    model.experts.route.k = 2;
    model.experts.intermediate_size = width;
    model.experts.shared_size = 2 * width;
    model.experts.shared_gate = true;
    model.experts.balance_coefficient = 0;
  }
  if (mup) model.mup = {.base_hidden_size = kBase, .base_head_dim = growth.heads ? 0 : kBaseHead};
  return model;
}

struct Coordinates {
  // Mean absolute change after some steps of the logits, of the last layer's values, and of its router's
  // logits.
  double logits, values, router = 0;
};

double mean_size(const std::vector<float>& after, const std::vector<float>& before) {
  double sum = 0;
  for (size_t i = 0; i < after.size(); ++i) sum += std::abs(static_cast<double>(after[i]) - before[i]);
  return sum / static_cast<double>(after.size());
}

// Records the output of the last layer's router during prefill.
class RouterLogits final : public Executor::Observer {
 public:
  RouterLogits(Executor& executor, const models::ModelConfig& model)
      : executor_(executor),
        weight_(executor.program(1).graph.find_value("layers.1.ffn.router.weight")),
        logits_(static_cast<size_t>(kLength * model.experts.count)) {
    executor.observe(this);
  }
  ~RouterLogits() override { executor_.observe(nullptr); }
  bool wants_results() const override { return true; }
  void instruction(size_t program, const program::Action& action, size_t index, double, double) override {
    if (program != 1 || action.segment != Segment::kForward || weight_ == graph::kNone) return;
    const program::Program& prefill = executor_.program(1);
    const program::Instruction& made = prefill.segment(Segment::kForward)[index];
    const auto& inputs = prefill.node_of(made).inputs;
    if (std::find(inputs.begin(), inputs.end(), weight_) == inputs.end()) return;
    executor_.download_operand(1, action, made, inputs.size(), logits_.data(), std::ssize(logits_) * 4);
  }
  std::vector<float> seen() const { return logits_; }

 private:
  Executor& executor_;
  graph::ValueId weight_;
  std::vector<float> logits_;
};

// The authors' check of an implementation: changes of activations after some steps, for several widths.
Coordinates coordinates(const models::ModelConfig& model, uint64_t seed) {
  config::RunConfig config;
  config.optimizer.weight_decay = 0;
  auto executor = train_executor(model, config, train_and_generate());
  program::initialize_weights(*executor, seed);
  executor->run(0, {Segment::kEncode});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kBatch * (kLength + 1); ++i)
    tokens.push_back(static_cast<int32_t>(1 + (i * i + 3 * i) % 60));
  const int64_t width = model.kv_heads * model.head_dim;
  const auto values = [&] {
    // The cache is not a persistent value: download it as an operand of an instruction that reads it.
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
  RouterLogits router(*executor, model);
  const auto logits_before = last_logits(*executor, tokens.data(), model.vocab_size);
  const auto values_before = values();
  const std::vector<float> routed_before = router.seen();
  for (int64_t i = 0; i < 4; ++i) step(*executor, tokens.data(), 1e-2f);
  const auto logits_after = last_logits(*executor, tokens.data(), model.vocab_size);
  return {mean_size(logits_after, logits_before), mean_size(values(), values_before),
          model.experts.count > 0 ? mean_size(router.seen(), routed_before) : 0};
}

// With experts, the mean over several initializations: a token that changes experts distorts a single one.
Coordinates coordinates(const models::ModelConfig& model) {
  const uint64_t seeds = model.experts.count > 0 ? 3 : 1;
  Coordinates mean{};
  for (uint64_t seed = 5; seed < 5 + seeds; ++seed) {
    const Coordinates one = coordinates(model, seed);
    mean.logits += one.logits / static_cast<double>(seeds);
    mean.values += one.values / static_cast<double>(seeds);
    mean.router += one.router / static_cast<double>(seeds);
  }
  return mean;
}

class MupCoordinates : public testing::TestWithParam<Growth> {};

TEST_P(MupCoordinates, AreIndependentOfWidthOnlyWithMup) {
  const Coordinates base = coordinates(tiny(GetParam(), kBase, true));
  const Coordinates same = coordinates(tiny(GetParam(), kBase, false));
  EXPECT_EQ(base.logits, same.logits);
  EXPECT_EQ(base.values, same.values);
  const bool experts = GetParam().experts;
  const double tolerance = experts ? 0.45 : 0.3;
  for (const int64_t width : {4 * kBase, (experts ? 8 : 16) * kBase}) {
    const Coordinates mup = coordinates(tiny(GetParam(), width, true));
    EXPECT_NEAR(mup.logits / base.logits, 1, tolerance) << width;
    EXPECT_NEAR(mup.values / base.values, 1, tolerance) << width;
    const Coordinates standard = coordinates(tiny(GetParam(), width, false));
    EXPECT_GT(standard.logits / base.logits, 2) << width;
    EXPECT_GT(standard.values / base.values, 2) << width;
    if (!experts) continue;
    // Router updates also depend on the initial logits, which decrease with width.
    EXPECT_LT(mup.router / base.router, 1.3) << width;
    EXPECT_GT(mup.router / base.router, 0.3) << width;
    EXPECT_GT(standard.router / base.router, 2) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Growths, MupCoordinates,
                         testing::Values(Growth{"tied_more_heads", true, true},
                                         Growth{"untied_more_heads", false, true},
                                         Growth{"untied_larger_heads", false, false},
                                         Growth{"experts_untied", false, true, true},
                                         Growth{"experts_larger_heads", true, false, true}),
                         [](const auto& growth) { return std::string(growth.param.name); });

}  // namespace
}  // namespace strata::training
