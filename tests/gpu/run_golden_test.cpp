// Models of transformers on the GPU device, whose driver is the twin, by the tolerances of the processor
// (tests/train/golden_model_test.cpp): loss, every gradient, documents, AdamW steps, logits and greedy text. With STRATA_LONG
// all decoders whose ops the device has.
#include "device/open/open.h"
#include "fixtures/golden_model.h"
#include "twin/twin.h"

namespace strata::training {
namespace {

using namespace golden;

#ifdef STRATA_LONG
constexpr const auto& kTested = kModels;
constexpr size_t kSteps = 5;
#else
constexpr const char* kTested[] = {"llama-tied", "gpt2", "mixtral", "t5", "deepseek-v3"};
constexpr size_t kSteps = 2;
#endif

// Neither recurrences nor chosen keys compute on GPUs.
bool computes(const models::ModelConfig& model) {
  return model.layer_kinds.empty() && !model.indexer;
}
std::vector<const char*> computed() {
  std::vector<const char*> names;
  for (const char* name : kTested)
    if (computes(Golden(name).model)) names.push_back(name);
  return names;
}

class GpuGolden : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { EXPECT_EQ(twin_.violation(), ""); }

  const gpu_tests::Twin twin_;
  const Golden golden_ = Golden(GetParam());
  const Device gpu_ = opened();

 private:
  Device opened() const {
    twin_.restart();
    return device::open(device::Kind::kCuda);
  }
};

TEST_P(GpuGolden, LossAndEveryGradient) {
  auto executor =
      make_executor(golden_, {train_request(golden_, kBatch, 1)}, Recompute::kNone, DType::kF32, gpu_);
  fill_plain(golden_, *executor);
  executor->run_micro_batches(0);
  EXPECT_NEAR(mean_loss(*executor), golden_.floats("loss")[0], 2e-5);
  int compared = 0;
  for (const auto& [name, entry] : golden_.source.tensors) {
    if (!name.starts_with("grad/")) continue;
    const auto wanted = golden_.floats(name);
    EXPECT_LT(distance(gradient_of(golden_, *executor, name.substr(5)), wanted), 1e-4 * scale_of(wanted))
        << name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
  fill_documents(golden_, *executor);
  executor->run_micro_batches(0);
  EXPECT_NEAR(mean_loss(*executor), golden_.floats("document/loss")[0], 2e-5);
}

TEST_P(GpuGolden, AdamWStepsFollowPyTorch) {
  const auto losses = golden_.floats("adamw/loss"), norms = golden_.floats("adamw/grad_norm");
  const Curve curve = adamw_curve(golden_, kSteps, gpu_);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(curve.losses[step], losses[step], 2e-4) << "step " << step;
    EXPECT_NEAR(curve.norms[step], norms[step], 1e-3 * norms[step]) << "step " << step;
  }
}

#ifdef STRATA_LONG
TEST_P(GpuGolden, Logits) {
  EXPECT_LT(logits_error(golden_, gpu_), 1e-4);
}
#endif

TEST_P(GpuGolden, GreedyText) {
  if (golden_.model.architecture == models::Architecture::kEncoder)
    GTEST_SKIP() << "an encoder writes no text";
  EXPECT_EQ(greedy_text(golden_, gpu_), golden_.integers("greedy/tokens"));
}

#ifdef STRATA_LONG
TEST(GpuGolden, OtherModelsAreRefusedByTheKeyOfTheDevice) {
  const gpu_tests::Twin twin;
  twin.restart();
  const Device gpu = device::open(device::Kind::kCuda);
  int refused = 0;
  for (const char* name : kTested) {
    const Golden golden(name);
    if (computes(golden.model)) continue;
    ++refused;
    try {
      make_executor(golden, {train_request(golden, kBatch, 1)}, Recompute::kNone, DType::kF32, gpu);
      ADD_FAILURE() << name << " compiles";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("[device.kind]"), 0) << name << ": " << error.what();
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(twin.violation(), "");
}
#endif

INSTANTIATE_TEST_SUITE_P(Models, GpuGolden, testing::ValuesIn(computed()), [](const auto& model) {
  std::string name = model.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace strata::training
