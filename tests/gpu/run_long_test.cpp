// Curves on the GPU device, whose driver is the twin: minutes, so `make test-long` runs them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "run_fixture.h"

namespace strata::training {
namespace {

class GpuCurve : public GpuRun {
 protected:
  // Thirty steps on both devices, which agree.
  void expect_same_curve(const std::string& model, const std::string& lr, double tolerance) {
    const auto train = [&](const Sets& device, const std::string& name) {
      std::string toml = tiny_.toml(name);
      const std::string tiny = kTinyModel;
      toml.replace(toml.find(tiny), tiny.size(), model);
      twin_.restart();
      const Sets sets{
          "training.steps=30",           "training.sequence_length=32",  "training.global_batch_size=1",
          "training.micro_batch_size=1", "optimizer.lr=" + lr,           "memory.budget=\"900MB\"",
          "recovery.snapshot=\"never\"", "checkpoint.interval=\"never\""};
      tiny_.train_with({.config = config::parse_run_config(toml, "RUN.toml", device + sets)});
      EXPECT_EQ(twin_.violation(), "") << name;
    };
    train({}, "cpu");
    train(kOnGpu, "gpu");
    const std::vector<double> found = values("gpu", "loss"), expected = values("cpu", "loss");
    ASSERT_EQ(found.size(), 30u);
    double worst = 0;
    for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] / expected[i] - 1));
    std::printf("loss %.4f to %.4f, largest difference %.2g\n", expected.front(), expected.back(), worst);
    EXPECT_LT(worst, tolerance);
    EXPECT_LT(found.back(), found.front());
  }
};

TEST_F(GpuCurve, ThirtyStepsOfAPresetFollowTheProcessor) {
  expect_same_curve("[model]\npreset = \"llama3-5m\"\n", "1e-3", 2e-5);  // measured: 1.1e-6 (2026-11-27)
}

TEST_F(GpuCurve, ThirtyStepsOfAMixtureFollowTheProcessor) {
  expect_same_curve(small_experts(8, 24), "1e-2", 2e-5);
}

}  // namespace
}  // namespace strata::training
