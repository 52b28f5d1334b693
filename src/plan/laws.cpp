#include "plan/laws.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::planning {
namespace {

// log10 of the saturated number of experts.
double log_experts(const RoutedLaw& law, double experts) {
  const double start = 1 / (1 / law.e_start - 1 / law.e_max);
  return -std::log10(1 / (experts - 1 + start) + 1 / law.e_max);
}

// `amount` with diminishing returns beyond `base`.
double with_decay(double base, double amount, double decay) {
  if (amount <= base) return amount;
  return base + base * decay * -std::expm1(-(amount / base - 1) / decay);
}

}  // namespace

double require_positive(double value, std::string_view what) {
  if (value > 0 && std::isfinite(value)) return value;
  throw ConfigError("[{}] found {}, expected a number above 0", what, value);
}

double PowerLaw::at(double x) const {
  return scale * std::pow(x, exponent);
}
double PowerLaw::inverse(double y) const {
  return std::pow(y / scale, 1 / exponent);
}

double LossLaw::loss(double params, double tokens) const {
  return e + a * std::pow(params, -alpha) + b * std::pow(tokens, -beta);
}

Optimum optimum_for_flops(const LossLaw& law, double flops) {
  require_positive(flops, "--flops");
  const double sum = law.alpha + law.beta;
  const double g = std::pow(law.alpha * law.a / (law.beta * law.b), 1 / sum);
  Optimum out;
  out.params = g * std::pow(flops / 6, law.beta / sum);
  out.tokens = flops / (6 * out.params);
  out.loss = law.loss(out.params, out.tokens);
  return out;
}

Optimum optimum_for_params(const LossLaw& law, double params) {
  require_positive(params, "--params");
  const double g = optimum_for_flops(law, 6.0).params;
  return optimum_for_flops(law, 6 * std::pow(params / g, (law.alpha + law.beta) / law.beta));
}

Optimum optimum_for_tokens(const LossLaw& law, double tokens) {
  require_positive(tokens, "--tokens");
  const double g = optimum_for_flops(law, 6.0).params;
  return optimum_for_flops(law, 6 * std::pow(tokens * g, (law.alpha + law.beta) / law.alpha));
}

std::optional<Optimum> optimum_for_loss(const LossLaw& law, double loss) {
  if (!(loss > law.e)) return std::nullopt;
  // On the frontier the two terms are in the ratio beta : alpha.
  const double share = law.beta / (law.alpha + law.beta);
  return optimum_for_params(law, std::pow(law.a / ((loss - law.e) * share), 1 / law.alpha));
}

std::optional<double> tokens_for_loss(const LossLaw& law, double params, double loss) {
  const double left = loss - law.e - law.a * std::pow(params, -law.alpha);
  if (!(left > 0)) return std::nullopt;
  return std::pow(law.b / left, 1 / law.beta);
}

Overtraining overtraining(const LossLaw& law, double params, double tokens) {
  require_positive(params, "--params");
  require_positive(tokens, "--tokens");
  Overtraining out;
  out.loss = law.loss(params, tokens);
  out.tokens_per_param = tokens / params;
  out.token_multiple = tokens / optimum_for_params(law, params).tokens;
  const Optimum least = optimum_for_loss(law, out.loss).value();
  out.compute_multiple = params * tokens / (least.params * least.tokens);
  out.size_fraction = params / least.params;
  return out;
}

std::optional<LifetimeOptimum> lifetime_optimum(const LossLaw& law, double loss, double inference_tokens) {
  const std::optional<Optimum> trained = optimum_for_loss(law, loss);
  if (!trained) return std::nullopt;
  const auto flops = [&](double params) {
    const auto tokens = tokens_for_loss(law, params, loss);
    return tokens ? 6 * params * *tokens + 2 * params * inference_tokens : INFINITY;
  };
  // Inference never makes a larger model optimal; below this size the loss cannot be reached.
  const double least = std::pow(law.a / (loss - law.e), 1 / law.alpha);
  LifetimeOptimum out;
  out.model.params = argmin_log(least * (1 + 1e-9), trained->params, flops);
  out.model.tokens = tokens_for_loss(law, out.model.params, loss).value();
  out.model.loss = loss;
  out.flops = flops(out.model.params);
  out.saved_fraction = 1 - out.flops / flops(trained->params);
  return out;
}

double KaplanLaw::loss(double params, double tokens) const {
  return std::pow(std::pow(n_c / params, alpha_n / alpha_d) + d_c / tokens, alpha_d);
}

double kaplan_loss_for_flops(double flops) {
  return std::pow(3.1e8 * kPetaflopDay / flops, 0.050);
}

double DataConstrainedLaw::effective_tokens(double unique_tokens, double tokens) const {
  return with_decay(unique_tokens, tokens, token_decay);
}

double DataConstrainedLaw::effective_params(double unique_tokens, double params) const {
  return with_decay(optimum_for_tokens(law, unique_tokens).params, params, param_decay);
}

double DataConstrainedLaw::loss(double params, double tokens, double unique_tokens) const {
  return law.loss(effective_params(unique_tokens, params), effective_tokens(unique_tokens, tokens));
}

Optimum optimum_for_flops(const DataConstrainedLaw& law, double flops, double unique_tokens) {
  require_positive(unique_tokens, "unique tokens");
  const Optimum free = optimum_for_flops(law.law, flops);
  if (free.tokens <= unique_tokens) return free;
  const auto loss = [&](double params) { return law.loss(params, flops / (6 * params), unique_tokens); };
  Optimum out;
  out.params = argmin_log(free.params * 1e-3, free.params * 1e3, loss);
  out.tokens = flops / (6 * out.params);
  out.loss = loss(out.params);
  return out;
}

LossLaw FineGrainedLaw::of_active(double granularity, double total_over_active) const {
  const double all = g * std::pow(granularity, -gamma) + a;
  return {.e = c, .a = all * std::pow(total_over_active, -alpha), .b = b, .alpha = alpha, .beta = beta};
}

double RoutedLaw::loss(double dense_params, double experts) const {
  const double n = std::log10(dense_params), e = log_experts(*this, experts);
  return std::pow(10.0, a * n + b * e + c * n * e + d);
}

double RoutedLaw::equivalent_params(double dense_params, double experts) const {
  const double n = std::log10(dense_params), e = log_experts(*this, experts), one = log_experts(*this, 1);
  return std::pow(10.0, (n * (a + c * e) + b * (e - one)) / (a + c * one));
}

double RoutedLaw::largest_useful_params() const {
  return std::pow(10.0, -b / c);
}

double argmin_log(double low, double high, FunctionRef<double(double)> function) {
  constexpr double kGolden = 0.6180339887498949;
  double left = std::log(low), right = std::log(high);
  double x1 = right - kGolden * (right - left), x2 = left + kGolden * (right - left);
  double y1 = function(std::exp(x1)), y2 = function(std::exp(x2));
  while (right - left > 1e-9) {
    if (y1 <= y2) {  // equal if both have reached the limit of large arguments
      right = x2;
      x2 = x1;
      y2 = y1;
      x1 = right - kGolden * (right - left);
      y1 = function(std::exp(x1));
    } else {
      left = x1;
      x1 = x2;
      y1 = y2;
      x2 = left + kGolden * (right - left);
      y2 = function(std::exp(x2));
    }
  }
  return std::exp((left + right) / 2);
}

}  // namespace strata::planning
