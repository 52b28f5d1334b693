#include "library/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "device/open/open.h"
#include "device/reference/bindings.h"
#include "ops/case_tensors.h"
#include "optim/optimizers.h"
#include "program/initialize.h"
#include "program/update.h"

namespace strata::library {
namespace {

using device::OpCase;
using ops::PlacedCase;
using ops::Tensor;

std::vector<PlacedCase> cases_of_ops() {
  std::vector<PlacedCase> all;
  const auto add = [&](const OpCase& one) {
    all.push_back({one, one});
    for (PlacedCase& placed : ops::placed_cases(one)) all.push_back(std::move(placed));
  };
  for (const OpCase& one : device::op_cases()) {
    add(one);
    if (const auto half = device::in_bf16(one)) add(*half);
  }
  return all;
}

class CaseTest {
 public:
  CaseTest(std::shared_ptr<device::Device> device, SelfTest& result)
      : device_(std::move(device)), processor_(device::open(device::Kind::kCpu)->spec()), result_(result) {}

  // False: the device has no kernel for it.
  bool run(const PlacedCase& one, uint64_t round) {
    const std::vector<Tensor> inputs = ops::inputs_of(one.placed, round);
    std::vector<Tensor> found, again;
    try {
      found = on_device(one.placed, inputs, 0xff);
      again = on_device(one.placed, inputs, 0);
    } catch (const ConfigError&) {
      return false;
    }
    ++result_.runs;
    const auto wanted = ops::run_case(one.apart, inputs, [&](graph::Graph graph) {
      return device::OpRun(std::move(graph), device::reference_bindings(), processor_);
    });
    compare(one.placed, found, again, wanted);
    return true;
  }

 private:
  std::vector<Tensor> on_device(const OpCase& one, const std::vector<Tensor>& inputs, int poison) const {
    return ops::run_case(
        one, inputs, [&](graph::Graph graph) { return device::OpRun(std::move(graph), device_); }, poison);
  }

  // One failure a case is enough.
  void compare(const OpCase& one, const std::vector<Tensor>& found, const std::vector<Tensor>& again,
               const std::vector<Tensor>& wanted) {
    for (size_t o = 0; o < found.size(); ++o) {
      if (std::find(one.opaque.begin(), one.opaque.end(), static_cast<int>(o)) != one.opaque.end()) continue;
      for (size_t i = 0; i < found[o].values.size(); ++i) {
        const double value = found[o].values[i], second = again[o].values[i], right = wanted[o].values[i];
        if (!ops::is_near(value, right, one.tolerance)) {
          result_.failures.push_back(fmt::format("{}: output {}, element {} is {}, expected {} within {}",
                                                 one.name, o, i, value, right, one.tolerance));
          return;
        }
        if (value != second) {
          result_.failures.push_back(fmt::format(
              "{}: output {}, element {} is {} and then {}: it depends on the content of memory or on "
              "the order in which threads run",
              one.name, o, i, value, second));
          return;
        }
      }
    }
  }

  std::shared_ptr<device::Device> device_;
  hardware::DeviceSpec processor_;
  SelfTest& result_;
};

constexpr int kSteps = 6;

double mean_loss(const std::shared_ptr<device::Device>& device, const models::ModelConfig& model,
                 DType dtype) {
  using namespace program;
  CompileOptions options;
  options.model = model;
  options.activations = dtype;
  // A large eps: else the first updates are the signs of gradients, which for small ones follow from rounding.
  options.rule_of = [](const std::string&, graph::ParameterRole) {
    return optim::one_rule({.weight_decay = 0.1, .optimizer = optim::AdamW{.eps = 1e-2}});
  };
  options.target = device->target();
  const Request request{.kind = Kind::kTrain, .sequences = 2, .sequence_length = 40, .micro_batches = 2};
  Executor executor(compile({request}, options), device);
  write_coordinates(executor);
  initialize_weights(executor, 1);
  executor.run(0, {Segment::kEncode});
  double loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
      std::vector<int32_t> tokens, targets, positions;
      for (int64_t i = 0; i < request.sequences * request.sequence_length; ++i) {
        const auto token_at = [&](int64_t at) {
          return static_cast<int32_t>((at * at * 7 + at * 31 + micro * 11) % model.vocab_size);
        };
        tokens.push_back(token_at(i));
        targets.push_back(token_at(i + 1));
        positions.push_back(static_cast<int32_t>(i % request.sequence_length));
      }
      executor.upload_column(0, Column::kTokens, micro, tokens);
      executor.upload_column(0, Column::kTargets, micro, targets);
      executor.upload_column(0, Column::kPositions, micro, positions);
    }
    write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
    executor.run_script(0);
    loss += executor.read<double>("loss_sum") / static_cast<double>(executor.read<int64_t>("token_count"));
  }
  return loss / kSteps;
}

void test_training(const std::shared_ptr<device::Device>& device, SelfTest& result) {
  const std::shared_ptr<device::Device> processor = device::open(device::Kind::kCpu);
  for (const char* preset : {"llama3-5m", "gpt2-124m", "qwen3-0.6b", "moe-30m-a10m"}) {
    models::ModelConfig model = models::preset(preset);
    model.vocab_size = 509;
    model.hidden_size = 96;
    model.layers = 3;
    model.heads = 3;
    model.kv_heads = model.kv_heads == model.heads ? 3 : 1;
    model.head_dim = 32;
    model.intermediate_size = 160;
    model.max_positions = 64;
    if (model.experts.count > 0) {
      model.experts.count = 8;
      model.experts.route.k = 2;
      model.experts.intermediate_size = 64;
    }
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SelfTest::Training one{.model = fmt::format("{} {}", preset, name_of(dtype)),
                             .tolerance = dtype == DType::kF32 ? 2e-5 : 1e-2};
      one.processor = mean_loss(processor, model, dtype);
      one.device = mean_loss(device, model, dtype);
      if (!(std::abs(one.device - one.processor) <= one.tolerance * one.processor)) {
        result.failures.push_back(
            fmt::format("training {}: the mean loss of {} steps is {}, on the processor {}", one.model,
                        kSteps, one.device, one.processor));
      }
      result.training.push_back(std::move(one));
    }
  }
}

}  // namespace

SelfTest test_device(const std::shared_ptr<device::Device>& device, double minutes,
                     FunctionRef<void(const std::string&)> report) {
  const double begin = monotonic_seconds(), end = begin + 60 * minutes;
  SelfTest result;
  result.device = device->spec().name;
  try {
    CaseTest test(device, result);
    std::vector<PlacedCase> cases;
    double reported = begin;
    const std::vector<PlacedCase> all = cases_of_ops();
    for (size_t i = 0; i < all.size(); ++i) {
      if (test.run(all[i], 0)) cases.push_back(all[i]);
      if (monotonic_seconds() < reported + 5) continue;
      reported = monotonic_seconds();
      report(fmt::format("{} of {} cases of ops, {} failures", i + 1, all.size(), result.failures.size()));
    }
    result.cases = std::ssize(cases);
    result.refused = std::ssize(all) - result.cases;
    report("small models");
    test_training(device, result);
    for (uint64_t round = 1; result.failures.empty() && monotonic_seconds() < end; ++round) {
      for (const PlacedCase& one : cases) {
        if (monotonic_seconds() >= end || !result.failures.empty()) break;
        test.run(one, round);
      }
      report(fmt::format("{} runs of cases with other numbers", result.runs));
    }
  } catch (const Error& error) {
    result.failures.emplace_back(error.what());
  }
  result.seconds = monotonic_seconds() - begin;
  return result;
}

}  // namespace strata::library
