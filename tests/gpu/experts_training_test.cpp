// Training steps of small mixtures of experts on the GPU device, whose driver is the twin: the losses and the weights of
// the processor, for every kind of router.
#include <functional>

#include "device/cpu/device.h"
#include "device/open/open.h"
#include "program/mesh_model.h"

namespace strata::gpu_tests {
namespace {

using namespace program;
using models::Experts;

constexpr int kSteps = 2;

struct Case {
  const char* name;
  const char* preset;
  DType dtype = DType::kF32;
  std::function<void(models::ModelConfig&)> change = [](models::ModelConfig&) {};
};

void with_groups(models::ModelConfig& model) {
  model.experts.route.groups = 3;
  model.experts.route.kept_groups = 2;
}
void with_capacity(models::ModelConfig& model, ops::CapacityAttrs::Keep keep, bool over_sequence) {
  model.experts.capacity = {.factor = 0.7, .over_sequence = over_sequence, .keep = keep};
}
void with_router(models::ModelConfig& model, Experts::Router router) {
  model.experts.router = router;
  if (router == Experts::Router::kSoft) model.experts.slots = 2;
  if (router == Experts::Router::kTwoLevel) {
    with_groups(model);
    model.experts.route.group_score = ops::RouteAttrs::GroupScore::kSum;
  }
}

const Case kCases[] = {
    {"TopK", "moe-30m-a10m"},
    {"TopKInBf16", "mixtral-8x7b", DType::kBF16},
    {"BiasedAndClamped", "gpt-oss-20b"},
    {"BiasedAndClampedInBf16", "gpt-oss-20b", DType::kBF16},
    // Sigmoid scores, a bias that chooses, groups, a shared expert.
    {"SigmoidInGroups", "glm-4.5-air", DType::kF32,
     [](auto& model) {
       with_groups(model);
       model.experts.route.group_score = ops::RouteAttrs::GroupScore::kBestTwo;
     }},
    // One expert and a shared one, whose inputs are weighed; queries that grow with the position.
    {"WeighedInputs", "llama4-50m", DType::kF32, [](auto& model) { model.sliding_window = {}; }},
    {"SharedWithAGate", "qwen1.5-moe-a2.7b", DType::kF32,
     [](auto& model) { model.experts.balance = Experts::Balance::kMicroBatch; }},
    {"TwoLevelsWithJitter", "moe-30m-a10m", DType::kF32,
     [](auto& model) {
       with_router(model, Experts::Router::kTwoLevel);
       model.experts.jitter = 0.1;
       model.experts.balance = Experts::Balance::kGlobal;
     }},
    {"Hashed", "moe-30m-a10m", DType::kF32, [](auto& model) { with_router(model, Experts::Router::kHash); }},
    {"ExpertChoice", "moe-30m-a10m", DType::kF32,
     [](auto& model) { with_router(model, Experts::Router::kExpertChoice); }},
    {"Soft", "moe-30m-a10m", DType::kF32, [](auto& model) { with_router(model, Experts::Router::kSoft); }},
    {"FirstWithinCapacity", "moe-30m-a10m", DType::kF32,
     [](auto& model) { with_capacity(model, ops::CapacityAttrs::Keep::kFirst, true); }},
    {"GreatestWithinCapacity", "moe-30m-a10m", DType::kF32,
     [](auto& model) { with_capacity(model, ops::CapacityAttrs::Keep::kGreatest, false); }},
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> weights;
};
Trained trained_on(const std::shared_ptr<device::Device>& device, const Case& one, int steps) {
  CompileOptions options = tiny_options(one.preset);
  options.model = small_model(one.preset);
  one.change(options.model);
  // Tiles of tensor cores take the executor longest, even if most of their rows are empty.
  const bool half = one.dtype == DType::kBF16;
  if (half) {
    options.model.layers = 1;
    options.model.experts.count = 3;
  }
  options.rule_of = steady_rule;
  options.activations = one.dtype;
  options.target = device->target();
  const Request request{
      .kind = Kind::kTrain, .sequences = 2, .sequence_length = kLength, .micro_batches = half ? 1 : 2};
  Executor executor(compile({request}, options), device);
  fill_tiny(executor);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    fill_batch(executor, {});
    write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    executor.run_script(0);
    result.losses.push_back(executor.read<double>("loss_sum") /
                            static_cast<double>(executor.read<int64_t>("token_count")));
  }
  for (const Persistent& entry : executor.set().persistent)
    if (entry.role == graph::Role::kParameter)
      result.weights[entry.name] = executor.read_all<float>(entry.name);
  return result;
}

class GpuExpertsTraining : public testing::TestWithParam<Case> {};

TEST_P(GpuExpertsTraining, HasTheProcessorsLossesAndWeights) {
  static const std::shared_ptr<device::Device> kGpu = device::open(device::Kind::kCuda);
  const Trained expected = trained_on(device::make_cpu_device(1), GetParam(), kSteps),
                found = trained_on(kGpu, GetParam(), kSteps);
  const bool exact = GetParam().dtype == DType::kF32;
  for (size_t step = 0; step < kSteps; ++step)
    EXPECT_NEAR(found.losses[step], expected.losses[step], (exact ? 2e-5 : 1e-2) * expected.losses[step])
        << "step " << step;
  if (!exact) return;
  for (const auto& [name, weights] : expected.weights) {
    const std::vector<float>& own = found.weights.at(name);
    ASSERT_EQ(own.size(), weights.size()) << name;
    // An update moves a weight by up to 1e-2.
    for (size_t i = 0; i < own.size(); ++i)
      ASSERT_NEAR(own[i], weights[i], 2e-5) << name << ", element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Routers, GpuExpertsTraining, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace strata::gpu_tests
