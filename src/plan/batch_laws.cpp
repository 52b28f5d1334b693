#include "plan/batch_laws.h"

#include <cmath>

namespace strata::planning {
namespace {

constexpr HyperparameterLaw kHyperparameterLaws[] = {
    {.name = "step-law",
     .source = "Step Law (arXiv 2503.04715); N without the vocabulary",
     .evidence = Evidence::kSecondary,
     .learning_rate = {.scale = 1.79, .params = -0.713, .tokens = 0.307},
     .batch = {.scale = 0.58, .tokens = 0.571}},
    {.name = "deepseek",
     .source = "DeepSeek LLM (arXiv 2401.02954); C from FLOPs a token without the embedding",
     .evidence = Evidence::kSecondary,
     .learning_rate = {.scale = 0.3118, .flops = -0.1250},
     .batch = {.scale = 0.2920, .flops = 0.3271}},
    {.name = "moonlight",
     .source = "Moonlight (arXiv 2502.16982)",
     .evidence = Evidence::kSecondary,
     .learning_rate = {.scale = 0.0127, .flops = -0.057},
     .batch = {.scale = 0.0065, .flops = 0.4138}},
};

}  // namespace

std::optional<double> GradientNoise::batch() const {
  if (!(gradient_squared > 0)) return std::nullopt;
  return trace / gradient_squared;
}

GradientNoise gradient_noise(double small_batch, double small_norm_squared, double big_batch,
                             double big_norm_squared) {
  return {.gradient_squared =
              (big_batch * big_norm_squared - small_batch * small_norm_squared) / (big_batch - small_batch),
          .trace = (small_norm_squared - big_norm_squared) / (1 / small_batch - 1 / big_batch)};
}

double step_multiple(double batch, double critical_batch) {
  return 1 + critical_batch / batch;
}
double token_multiple(double batch, double critical_batch) {
  return 1 + batch / critical_batch;
}

double kaplan_critical_batch(double loss) {
  return 2e8 * std::pow(loss, -1 / 0.21);
}

double critical_batch_at(double tokens, double reference_tokens, double reference_batch) {
  return reference_batch * std::pow(tokens / reference_tokens, 0.47);
}

int64_t most_data_ranks(double critical_batch_tokens, int64_t sequence_length) {
  return static_cast<int64_t>(critical_batch_tokens / static_cast<double>(sequence_length));
}

double HyperparameterLaw::Product::at(double params_count, double tokens_count) const {
  return scale * std::pow(6 * params_count * tokens_count, flops) * std::pow(params_count, params) *
         std::pow(tokens_count, tokens);
}

std::span<const HyperparameterLaw> hyperparameter_laws() {
  return kHyperparameterLaws;
}

WidthTransfer width_transfer(double width_multiple) {
  return {.matrix_init_std = 1 / std::sqrt(width_multiple),
          .matrix_learning_rate = 1 / width_multiple,
          .matrix_weight_decay = width_multiple,
          .logits = 1 / width_multiple,
          .attention_scale = 1 / width_multiple};
}

double transfer_learning_rate(double learning_rate, double batch, double new_batch, double critical_batch,
                              Optimizer optimizer) {
  const double ratio = step_multiple(batch, critical_batch) / step_multiple(new_batch, critical_batch);
  return learning_rate * std::pow(ratio, optimizer == Optimizer::kAdam ? 0.5 : 1.0);
}

}  // namespace strata::planning
