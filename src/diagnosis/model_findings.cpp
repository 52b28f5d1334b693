// Values within the model: attention scores, routers, experts, units.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "diagnosis/findings.h"

namespace strata::diagnosis {
namespace {

// The recent level of a figure and its level in the first quarter of the run after the warm-up.
struct Growth {
  double before = 0, now = 0;
  int64_t since = 0;  // first step of the window that `now` is of
  double factor() const { return before > 0 ? now / before : 1; }
};

std::optional<Growth> growth_of(const Case& at, std::string_view name) {
  constexpr size_t kLeastValues = 40;  // measured every few steps
  const Series figure = at.column(name).between(at.warmup, at.step);
  if (figure.size() < kLeastValues) return std::nullopt;
  const size_t quarter = figure.size() / 4;
  const Series recent = figure.last(std::min(window_of(figure.size()), quarter));
  return Growth{.before = median_of({figure.values().begin(),
                                     figure.values().begin() + static_cast<std::ptrdiff_t>(quarter)}),
                .now = recent.median(),
                .since = recent.steps().front()};
}

// Both figures are bounds of the values themselves, up to a few times as high.
std::optional<Found> report_growth(const Case& at, std::string_view figure, double high, double too_high,
                                   const char* text) {
  constexpr double kGrowth = 2;
  const std::optional<Growth> growth = growth_of(at, figure);
  if (!growth || growth->now < high || (growth->factor() < kGrowth && growth->now < too_high))
    return std::nullopt;
  Found found{.sentence = fmt::format("{}: from {} to {} since step {}.", text, shown(growth->before),
                                      shown(growth->now), growth->since),
              .evidence = {{"before", growth->before}, {"now", growth->now}, {"since_step", growth->since}},
              .settings = {}};
  add_scaled_lr(at, 0.5, found.settings);
  if (at.run.config && at.run.config->optimizer.weight_decay < 0.1)
    found.settings.emplace_back("optimizer.weight_decay=0.1");
  return found;
}

std::optional<Found> find_attention_growth(const Case& at) {
  // Growth of attention scores precedes divergence (Wortsman et al., arXiv 2309.14322); Kimi K2 limits them to
  // 100, and from 1,000 on softmax is one-hot and has no gradient.
  return report_growth(at, "attention_max", 200, 2000,
                       "Attention scores grow, so that attention becomes one-hot and training may diverge");
}

std::optional<Found> find_logit_growth(const Case& at) {
  // A bound of the norm of a hidden state times that of a row of the head: about the width's root at first.
  return report_growth(at, "logit_max", 500, 5000,
                       "The model's logits grow, so that the loss depends on their rounding and may diverge");
}

std::optional<Found> find_router_logit_growth(const Case& at) {
  // The root mean square of log Σ exp; log(experts) plus a little is usual. fp32 softmax loses the small
  // probabilities from about 100 on.
  constexpr double kHigh = 20, kGrowth = 2;
  const std::optional<Growth> growth = growth_of(at, "router_z");
  if (!growth || growth->now < kHigh || growth->factor() < kGrowth) return std::nullopt;
  double coefficient = 1e-3;  // ST-MoE's
  if (at.run.config && !at.run.config->moe.z_coef.is_word())
    coefficient = std::max(coefficient, 3 * *at.run.config->moe.z_coef);
  return Found{.sentence = fmt::format(
                   "The router's logits grew: log Σ exp rose from {} to {}, so its choices become final and "
                   "rounding matters.",
                   shown(growth->before), shown(growth->now)),
               .evidence = {{"before", growth->before}, {"now", growth->now}, {"since_step", growth->since}},
               .settings = {"moe.z_coef=" + short_number(coefficient)}};
}

// Settings that spread tokens over more experts.
void add_balance(const Case& at, Settings& to) {
  if (!at.run.config) return;
  const config::MoeTable& moe = at.run.config->moe;
  const double now = moe.aux_coef.is_word() ? 0 : *moe.aux_coef;
  to.push_back("moe.aux_coef=" + short_number(now > 0 ? 3 * now : 0.01));
  if (!moe.bias_rate.is_word() && *moe.bias_rate > 0)
    to.push_back("moe.bias_rate=" + short_number(3 * *moe.bias_rate));
}

// The load of each layer's experts over the newest samples.
std::vector<observe::LayerTokens> recent_load(const Case& at) {
  constexpr size_t kSamples = 3;
  std::vector<observe::LayerTokens> sum;
  const auto& samples = at.run.experts;
  for (size_t i = samples.size() - std::min(kSamples, samples.size()); i < samples.size(); ++i) {
    const auto& layers = samples[i].layers;
    const bool is_alike =
        std::equal(sum.begin(), sum.end(), layers.begin(), layers.end(), [](const auto& a, const auto& b) {
          return a.layer == b.layer && a.tokens.size() == b.tokens.size();
        });
    if (!is_alike) {
      sum = layers;
      continue;
    }
    for (size_t layer = 0; layer < sum.size(); ++layer) {
      for (size_t expert = 0; expert < sum[layer].tokens.size(); ++expert)
        sum[layer].tokens[expert] += layers[layer].tokens[expert];
    }
  }
  // With few tokens per expert, an empty one is chance.
  constexpr int64_t kTokensPerExpert = 100;
  std::erase_if(sum, [](const observe::LayerTokens& layer) {
    return std::accumulate(layer.tokens.begin(), layer.tokens.end(), int64_t{0}) <
           kTokensPerExpert * std::ssize(layer.tokens);
  });
  return sum;
}

// As training::CollapseAlarm, whose number of chosen experts is not recorded: at most a quarter in use, or
// more than half of them without a token.
bool has_collapsed(const observe::LayerTokens& layer) {
  const observe::ExpertSpread spread = observe::spread_of(layer.tokens);
  const auto experts = static_cast<double>(layer.tokens.size());
  return experts > 2 &&
         (spread.in_use <= std::max(1.0, experts / 4) || 2 * static_cast<double>(spread.dead) > experts);
}

std::optional<Found> find_routing_collapse(const Case& at) {
  std::vector<int64_t> layers;
  const observe::LayerTokens* worst = nullptr;
  double least = 0;
  const std::vector<observe::LayerTokens> load = recent_load(at);
  for (const observe::LayerTokens& layer : load) {
    if (!has_collapsed(layer)) continue;
    layers.push_back(layer.layer);
    const double in_use = observe::spread_of(layer.tokens).in_use;
    if (worst == nullptr || in_use < least) {
      worst = &layer;
      least = in_use;
    }
  }
  if (worst == nullptr) return std::nullopt;
  const auto alarms = at.events("routing_collapse");
  const int64_t since = alarms.empty() ? at.step : alarms.front()->at_step;
  Found found{.sentence = fmt::format(
                  "Routing has collapsed in {} since about step {}: layer {} uses {:.1f} of {} experts.",
                  counted_in(std::ssize(layers), "layer"), since, worst->layer, least, worst->tokens.size()),
              .evidence = {{"layers", layers},
                           {"since_step", since},
                           {"layer", worst->layer},
                           {"in_use", least},
                           {"experts", worst->tokens.size()}},
              .settings = {}};
  add_balance(at, found.settings);
  add_scaled_lr(at, 0.5, found.settings);
  return found;
}

std::optional<Found> find_dead_experts(const Case& at) {
  int64_t dead = 0, experts = 0;
  std::vector<int64_t> layers;
  for (const observe::LayerTokens& layer : recent_load(at)) {
    if (has_collapsed(layer)) continue;  // reported above
    experts += std::ssize(layer.tokens);
    const auto without = std::count(layer.tokens.begin(), layer.tokens.end(), 0);
    if (without > 0) layers.push_back(layer.layer);
    dead += without;
  }
  if (dead == 0) return std::nullopt;
  Found found{
      .sentence = fmt::format(
          "{} of {} experts received no token in the newest samples, in {}: their parameters are not trained.",
          dead, experts, counted_in(std::ssize(layers), "layer")),
      .evidence = {{"dead", dead},
                   {"experts", experts},
                   {"layers", layers},
                   {"step", at.run.experts.back().step}},
      .settings = {}};
  add_balance(at, found.settings);
  return found;
}

std::optional<Found> find_dead_units(const Case& at) {
  constexpr double kZeros = 0.95;  // beyond the sparsity of squared ReLU
  constexpr size_t kSamples = 3;   // in a row
  if (at.run.layers.size() < kSamples) return std::nullopt;
  std::map<std::pair<int64_t, std::string>, std::vector<double>> shares;
  for (size_t i = at.run.layers.size() - kSamples; i < at.run.layers.size(); ++i) {
    for (const TensorFigures& one : at.run.layers[i].tensors) {
      if (!std::isnan(one.zero_share)) shares[{one.layer, one.tensor}].push_back(one.zero_share);
    }
  }
  std::set<int64_t> layers;
  double most = 0;
  for (const auto& [name, values] : shares) {
    if (values.size() < kSamples || *std::min_element(values.begin(), values.end()) < kZeros) continue;
    layers.insert(name.first);
    most = std::max(most, values.back());
  }
  if (layers.empty()) return std::nullopt;
  Found found{
      .sentence = fmt::format(
          "Units are dead in {}, first in layer {}: up to {} of their activations are zero, so their weights "
          "receive no gradient.",
          counted_in(std::ssize(layers), "layer"), *layers.begin(), percent(most)),
      .evidence = {{"layers", layers}, {"zero_share", most}, {"step", at.run.layers.back().step}},
      .settings = {}};
  add_scaled_lr(at, 0.5, found.settings);
  add_longer_warmup(at, found.settings);
  return found;
}

}  // namespace

std::span<const FindingKind> model_findings() {
  static constexpr FindingKind kKinds[] = {
      {"attention_growth", "a bound of attention scores above 200 that doubled, or above 2,000",
       find_attention_growth},
      {"logit_growth", "a bound of the logits above 500 that doubled, or above 5,000", find_logit_growth},
      {"router_logit_growth", "router logits whose log Σ exp doubled, to more than 20",
       find_router_logit_growth},
      {"routing_collapse", "a layer uses at most a quarter of its experts", find_routing_collapse},
      {"dead_experts", "experts without a token in other layers", find_dead_experts},
      {"dead_units", "more than 95 % of a layer's activations are zero", find_dead_units},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
