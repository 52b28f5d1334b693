#include "plan/published_laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/suggest.h"

namespace strata::planning {
namespace {

constexpr double kNormal80 = 1.2816, kNormal90 = 1.6449;  // half widths in standard deviations
// Geometric mean of Chinchilla's IsoFLOP budgets, 6e18 to 3e21.
constexpr double kChinchillaPivot = 1.3e20;

// Standard deviation of an exponent from its 80 % interval.
constexpr double sigma_of(double low, double high) {
  return (high - low) / (2 * kNormal80);
}

constexpr AllocationLaw kLaws[] = {
    {.name = "chinchilla",
     .title = "Chinchilla approach 3, as replicated",
     .source = "Epoch AI (arXiv 2404.10102), table 1",
     .loss = LossLaw{1.8172, 482.01, 2085.43, 0.3478, 0.3658},
     // The base is chosen so that the 80 % interval of tokens per parameter at 1e26 FLOPs is 4 to 40, as
     // published.
     .sigma_base = 0.377,
     .sigma_exponent = 0.018,
     .pivot = kChinchillaPivot},
    {.name = "chinchilla-paper",
     .title = "Chinchilla approach 3, rounded as printed",
     .source = "Hoffmann et al. (arXiv 2203.15556), eq. 10",
     .corrected_by = "chinchilla",
     .loss = LossLaw{1.69, 406.4, 410.7, 0.34, 0.28},
     .sigma_exponent = sigma_of(0.454, 0.455),
     .pivot = kChinchillaPivot},
    {.name = "chinchilla-tex",
     .title = "Chinchilla approach 3, unrounded",
     .source = "TeX of Hoffmann et al. (arXiv 2203.15556)",
     .evidence = Evidence::kSecondary,
     .corrected_by = "chinchilla",
     .loss = LossLaw{1.6934, 406.4, 410.7, 0.3392, 0.2849},
     .sigma_exponent = sigma_of(0.454, 0.455),
     .pivot = kChinchillaPivot},
    {.name = "chinchilla-1",
     .title = "Chinchilla approach 1, envelope of training curves",
     .source = "Hoffmann et al. (arXiv 2203.15556), tables 2 and 3: 67B at 5.76e23 FLOPs",
     .evidence = Evidence::kSecondary,
     .params_law = {0.08828, 0.50},
     .sigma_exponent = sigma_of(0.488, 0.502),
     .pivot = kChinchillaPivot},
    {.name = "chinchilla-2",
     .title = "Chinchilla approach 2, IsoFLOP profiles",
     .source = "Hoffmann et al. (arXiv 2203.15556), tables 2 and A3: 67B at 6.88e23 FLOPs",
     .evidence = Evidence::kMemory,
     .params_law = {0.139848, 0.49},
     .sigma_exponent = sigma_of(0.462, 0.534),
     .pivot = kChinchillaPivot},
    {.name = "rule-of-20",
     .title = "20 tokens for each parameter",
     .source = "Hoffmann et al. (arXiv 2203.15556), as commonly used",
     .params_law = {0.0912870929175277, 0.5}},
    {.name = "kaplan",
     .title = "Kaplan, parameters that are not embeddings",
     .source = "Kaplan et al. (arXiv 2001.08361), fig. 14: 1.3e9 C^0.73, C in PF-days",
     .evidence = Evidence::kSecondary,
     .corrected_by = "chinchilla",
     .params_law = {3.63319e-6, 0.73}},
};

// Standard deviation of ln N at a budget; NaN if none was published.
double sigma_at(const AllocationLaw& law, double flops) {
  if (law.pivot <= 0) return NAN;
  return std::hypot(law.sigma_base, law.sigma_exponent * std::log(flops / law.pivot));
}

double exponent_of(const AllocationLaw& law) {
  return law.loss ? law.loss->beta / (law.loss->alpha + law.loss->beta) : law.params_law.exponent;
}

Interval interval(double value, double sigma) {
  return {value, value * std::exp(-kNormal90 * sigma), value * std::exp(kNormal90 * sigma)};
}

}  // namespace

std::span<const AllocationLaw> allocation_laws() {
  return kLaws;
}

const AllocationLaw& find_allocation_law(std::string_view name) {
  std::vector<std::string> names;
  for (const AllocationLaw& law : kLaws) {
    if (law.name == name) return law;
    names.emplace_back(law.name);
  }
  const auto nearest = nearest_name(name, names);
  throw ConfigError("[--law] found \"{}\", expected one of {}{}", name, fmt::join(names, ", "),
                    nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
}

Allocation allocate_flops(const AllocationLaw& law, double flops) {
  require_positive(flops, "--flops");
  Allocation out{.law = law.name, .flops = flops, .params = {}, .tokens = {}, .loss = {}};
  double params = law.params_law.at(flops);
  if (law.loss) {
    const Optimum best = optimum_for_flops(*law.loss, flops);
    params = best.params;
    out.loss = best.loss;
  } else if (law.name == "kaplan") {
    out.loss = kaplan_loss_for_flops(flops);
  }
  const double sigma = sigma_at(law, flops);
  out.params = interval(params, sigma);
  out.tokens = interval(flops / (6 * params), sigma);
  return out;
}

Allocation allocate_params(const AllocationLaw& law, double params) {
  require_positive(params, "--params");
  const double flops = law.loss ? [&] {
    const Optimum best = optimum_for_params(*law.loss, params);
    return 6 * best.params * best.tokens;
  }()
                                : law.params_law.inverse(params);
  Allocation out = allocate_flops(law, flops);
  // An uncertainty s of ln N at a budget is an uncertainty s / exponent of ln C at a size;
  // ln D = ln C - ln N - ln 6.
  const double sigma = sigma_at(law, flops) / exponent_of(law);
  out.params = {params, params, params};
  out.tokens = interval(out.tokens.value, sigma);
  return out;
}

Allocation allocate_tokens(const AllocationLaw& law, double tokens) {
  require_positive(tokens, "--tokens");
  double flops = 0.0;
  if (law.loss) {
    const Optimum best = optimum_for_tokens(*law.loss, tokens);
    flops = 6 * best.params * best.tokens;
  } else {
    // D = C / (6 N) = C^(1 - a) / (6 scale).
    flops = PowerLaw{1 / (6 * law.params_law.scale), 1 - law.params_law.exponent}.inverse(tokens);
  }
  Allocation out = allocate_flops(law, flops);
  const double sigma = sigma_at(law, flops) / (1 - exponent_of(law));
  out.tokens = {tokens, tokens, tokens};
  out.params = interval(out.params.value, sigma);
  return out;
}

std::span<const NamedKaplanLaw> kaplan_laws() {
  static constexpr NamedKaplanLaw kKaplan[] = {
      {"Kaplan et al. (arXiv 2001.08361), eq. 1.1 and 1.2", {8.8e13, 0.076, 5.4e13, 0.095}},
      {"Kaplan et al. (arXiv 2001.08361), table 2, joint fit", {6.4e13, 0.076, 1.8e13, 0.103}},
  };
  return kKaplan;
}

const DataConstrainedLaw& data_constrained_law() {
  // exp(0.6254804), exp(6.255414) and exp(7.3049974) of the paper's code.
  static const DataConstrainedLaw kLaw{
      {std::exp(0.6254804), std::exp(6.255414), std::exp(7.3049974), 0.3526596, 0.3526596},
      15.387756,
      5.309743};
  return kLaw;
}

const FineGrainedLaw& fine_grained_law() {
  static constexpr FineGrainedLaw kLaw{
      .c = 0.47, .g = 2.1, .gamma = 0.58, .a = 18.1, .alpha = 0.115, .b = 30.8, .beta = 0.147};
  return kLaw;
}

const LossLaw& fine_grained_dense_law() {
  static constexpr LossLaw kLaw{0.47, 16.3, 26.7, 0.126, 0.127};
  return kLaw;
}

const RoutedLaw& routed_law() {
  static constexpr RoutedLaw kLaw{-0.082, -0.108, 0.009, 1.104, 1.847, 314.478};
  return kLaw;
}

}  // namespace strata::planning
