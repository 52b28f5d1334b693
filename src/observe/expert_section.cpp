#include "observe/expert_section.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "observe/heat_map.h"
#include "observe/markup.h"

namespace strata::observe {
namespace {

constexpr double kEmpty = std::numeric_limits<double>::quiet_NaN();

std::string steps_of(const ExpertSample& sample) {
  if (sample.steps == 1) return fmt::format("step {}", sample.step);
  return fmt::format("steps {} to {}", sample.step - sample.steps + 1, sample.step);
}

// Tokens relative to an equal share; 0 if the layer had no tokens.
double multiple_of(const LayerTokens& layer, size_t expert) {
  const auto all = std::accumulate(layer.tokens.begin(), layer.tokens.end(), int64_t{0});
  if (all == 0) return 0;
  return static_cast<double>(layer.tokens[expert]) * static_cast<double>(layer.tokens.size()) /
         static_cast<double>(all);
}

size_t most_experts(const ExpertSample& sample) {
  size_t most = 0;
  for (const LayerTokens& layer : sample.layers) most = std::max(most, layer.tokens.size());
  return most;
}

std::vector<std::string> names_of_layers(const ExpertSample& sample) {
  std::vector<std::string> names;
  for (const LayerTokens& layer : sample.layers) names.push_back(fmt::format("layer {}", layer.layer));
  return names;
}

std::string drawn(const HeatMap& map) {
  return "<div class=\"plot\">" + draw_heat_map(map) + "</div>\n";
}

std::string shares_of(const ExpertSample& sample) {
  const size_t experts = most_experts(sample);
  HeatMap map{.title = "Tokens of each expert (1 ×: an equal share)",
              .rows = names_of_layers(sample),
              .columns = {},
              .first = "expert 0",
              .last = fmt::format("expert {}", experts - 1),
              .text = [](double value) { return fmt::format("{:.2f} ×", value); },
              .most_columns = 512};
  for (size_t expert = 0; expert < experts; ++expert) {
    std::vector<double>& column = map.columns.emplace_back();
    for (const LayerTokens& layer : sample.layers) {
      const bool has_tokens = expert < layer.tokens.size() && layer.tokens[expert] > 0;
      column.push_back(has_tokens ? multiple_of(layer, expert) : kEmpty);
    }
  }
  return drawn(map);
}

std::string violations_of(const std::vector<ExpertSample>& samples) {
  HeatMap map{.title = "Busiest expert above the mean, by layer (MaxVio)",
              .rows = names_of_layers(samples.back()),
              .columns = {},
              .first = fmt::format("step {}", samples.front().step),
              .last = fmt::format("step {}", samples.back().step),
              .text = [](double value) { return fmt::format("{:.2f}", value); }};
  for (const ExpertSample& sample : samples) {
    std::vector<double>& column = map.columns.emplace_back();
    for (const LayerTokens& layer : sample.layers) column.push_back(spread_of(layer.tokens).max_violation);
  }
  return drawn(map);
}

// "steps 91 to 100: busiest: expert 3 of layer 5, with 2.1 × an equal share; experts without tokens (left
// blank): 2 of layer 4".
std::string in_words(const ExpertSample& sample) {
  double most = 0;
  std::string busiest, dead;
  for (const LayerTokens& layer : sample.layers) {
    const auto expert = static_cast<size_t>(std::max_element(layer.tokens.begin(), layer.tokens.end()) -
                                            layer.tokens.begin());
    if (const double multiple = multiple_of(layer, expert); multiple > most) {
      most = multiple;
      busiest = fmt::format("busiest: expert {} of layer {}, with {:.2g} × an equal share", expert,
                            layer.layer, multiple);
    }
    if (const int64_t none = spread_of(layer.tokens).dead; none > 0)
      dead += fmt::format("{}{} of layer {}", dead.empty() ? "" : ", ", none, layer.layer);
  }
  return fmt::format("{}: {}; experts without tokens (left blank): {}", steps_of(sample),
                     busiest.empty() ? "no tokens" : busiest, dead.empty() ? "none" : dead);
}

}  // namespace

std::string expert_section(const std::vector<ExpertSample>& samples) {
  if (samples.empty() || samples.back().layers.empty()) return "";
  const ExpertSample& newest = samples.back();
  return fmt::format(
             "<section class=\"card wide\"><h2>Experts <span class=\"muted\">&middot; {} in each of {} "
             "layers</span></h2>\n<div class=\"small\">{}</div>\n",
             most_experts(newest), newest.layers.size(), escape_markup(in_words(newest))) +
         shares_of(newest) + violations_of(samples) + "</section>\n";
}

}  // namespace strata::observe
