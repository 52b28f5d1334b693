// Whole training steps on the GPU device, whose driver is the twin: the losses of the processor.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "device/cpu/device.h"
#include "device/open/open.h"
#include "fixtures/tiny_program.h"

namespace strata::gpu_tests {
namespace {

using namespace program;

struct Case {
  std::string preset;
  DType dtype;
  optim::Optimizer optimizer = kSteadyAdamW;
  double lr = 1e-2;
  int64_t predicted = 0;  // layers that predict further tokens
  int64_t micro_batches = 2;
  int steps = 3;
};
// Quick: the executor takes seconds for a step.
Case two_steps(const std::string& preset, DType dtype, int64_t predicted = 0) {
  return {.preset = preset, .dtype = dtype, .predicted = predicted, .micro_batches = 1, .steps = 2};
}

std::vector<double> losses_on(const std::shared_ptr<device::Device>& device, const Case& one, int steps) {
  CompileOptions options = tiny_options(one.preset);
  options.model.predict_layers = one.predicted;
  options.rule_of = [&one](const std::string&, graph::ParameterRole) {
    return optim::one_rule({.weight_decay = 0.1, .optimizer = one.optimizer});
  };
  options.activations = one.dtype;
  options.target = device->target();
  Request request = tiny_request(one.micro_batches);
  if (options.model.architecture == models::Architecture::kEncoderDecoder) request.encoder_length = 30;
  Executor executor(compile({request}, options), device);
  fill_tiny(executor);
  if (one.predicted > 0) write_terms(executor, std::array<int64_t, 2>{96, 92});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    write_hyper(executor, {.max_grad_norm = 1, .lr = static_cast<float>(one.lr)});
    executor.run_script(0);
    losses.push_back(executor.read<double>("loss_sum") /
                     static_cast<double>(executor.read<int64_t>("token_count")));
  }
  return losses;
}

class GpuTraining : public testing::TestWithParam<Case> {};

TEST_P(GpuTraining, HasTheProcessorsLosses) {
  // One for all: it keeps the kernels that it has loaded.
  static const std::shared_ptr<device::Device> kGpu = device::open(device::Kind::kCuda);
  const std::vector<double> expected = losses_on(device::make_cpu_device(1), GetParam(), GetParam().steps),
                            found = losses_on(kGpu, GetParam(), GetParam().steps);
  const double tolerance = GetParam().dtype == DType::kBF16 ? 1e-2 : 2e-5;
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], tolerance * expected[step]) << "step " << step;
  EXPECT_LT(found.back(), found.front()) << "it learns";
  if (GetParam().dtype == DType::kF32) {
    EXPECT_EQ(found.front(), losses_on(kGpu, GetParam(), 1).front()) << "the same bits twice";
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuTraining,
                         testing::Values(Case{"llama3-5m", DType::kF32}, Case{"llama3-5m", DType::kBF16},
                                         Case{"gpt2-124m", DType::kF32}, Case{"gpt2-124m", DType::kBF16},
                                         Case{"qwen3-0.6b", DType::kBF16},
                                         Case{"qwen3-0.6b", DType::kF32, optim::Adafactor{}, 1e-2},
                                         two_steps("llama3-5m", DType::kF32, 1)),
                         [](const auto& one) {
                           return one.param.preset.substr(0, one.param.preset.find('-')) + "_" +
                                  std::string(name_of(one.param.dtype)) + "_" +
                                  std::string(optim::name_of(one.param.optimizer)) +
                                  (one.param.predicted > 0 ? "_predicting" : "");
                         });
INSTANTIATE_TEST_SUITE_P(Other, GpuTraining,
                         testing::Values(two_steps("bert-tiny", DType::kF32),
                                         two_steps("t5-small", DType::kF32),
                                         two_steps("t5-small", DType::kBF16),
                                         two_steps("deepseek3-6m", DType::kF32),
                                         two_steps("deepseek3-6m", DType::kBF16)),
                         [](const auto& one) {
                           return one.param.preset.substr(0, one.param.preset.find('-')) + "_" +
                                  std::string(name_of(one.param.dtype));
                         });

}  // namespace
}  // namespace strata::gpu_tests
