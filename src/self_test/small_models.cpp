#include "self_test/small_models.h"

#include <fmt/format.h>

#include <cmath>

#include "device/open/open.h"
#include "optim/optimizers.h"
#include "program/initialize.h"
#include "program/update.h"
#include "self_test/expected.h"
#include "self_test/parts.h"

namespace strata::self_test {

std::vector<SmallModel> small_models() {
  std::vector<SmallModel> out;
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
      out.push_back({.name = fmt::format("{} {}", preset, strata::name_of(dtype)),
                     .model = model,
                     .dtype = dtype,
                     .tolerance = dtype == DType::kF32 ? 2e-5 : 1e-2});
    }
  }
  return out;
}

std::vector<double> losses_of(const std::shared_ptr<device::Device>& device, const SmallModel& small) {
  using namespace program;
  CompileOptions options;
  options.model = small.model;
  options.activations = small.dtype;
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
  std::vector<double> losses;
  for (int step = 0; step < kCurveSteps; ++step) {
    for (int64_t micro = 0; micro < request.micro_batches; ++micro) {
      std::vector<int32_t> tokens, targets, positions;
      for (int64_t i = 0; i < request.sequences * request.sequence_length; ++i) {
        const auto token_at = [&](int64_t at) {
          return static_cast<int32_t>((at * at * 7 + at * 31 + micro * 11) % small.model.vocab_size);
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
    losses.push_back(executor.read<double>("loss_sum") /
                     static_cast<double>(executor.read<int64_t>("token_count")));
  }
  return losses;
}

void test_curves(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part) {
  const Expected expected = options.expected.empty() ? Expected{} : read_expected(options.expected);
  const DevicePtr processor = device::open(device::Kind::kCpu);
  size_t ran = 0;
  const std::vector<SmallModel> models = small_models();
  for (const SmallModel& small : models) {
    if (limit.over()) {
      part.state = State::kCut;
      break;
    }
    const auto recorded = expected.curves.find(small.name);
    const std::vector<double> right =
        recorded == expected.curves.end() ? losses_of(processor, small) : recorded->second;
    const std::vector<double> found = losses_of(device, small);
    double worst = 0;
    for (size_t i = 0; i < right.size() && i < found.size(); ++i) {
      const double off = std::abs(found[i] - right[i]) / right[i];
      if (!(off <= small.tolerance)) {
        part.failures.push_back(fmt::format("training {}: the loss of step {} is {}, on the processor {}",
                                            small.name, i + 1, found[i], right[i]));
        break;
      }
      worst = std::max(worst, off);
    }
    part.facts[small.name] = {{"last_loss", found.back()},
                              {"last_loss_on_processor", right.back()},
                              {"worst_difference", worst},
                              {"tolerance", small.tolerance}};
    ++ran;
    options.progress(fmt::format("{} of {} small models", ran, models.size()));
  }
  part.summary = fmt::format("{} of {} small models have the processor's losses for {} steps",
                             ran - part.failures.size(), models.size(), kCurveSteps);
}

}  // namespace strata::self_test
