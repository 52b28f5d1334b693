#include "train/noise_scale.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace strata::training {

std::string to_json(const NoiseState& state) {
  return dump_json(
      nlohmann::ordered_json{{"measured", state.measured}, {"signal", state.signal}, {"noise", state.noise}});
}

NoiseState noise_state_from_json(const std::string& text, const std::string& where) {
  try {
    const auto json = parse_json<nlohmann::ordered_json>(text);
    return {.measured = json.at("measured"), .signal = json.at("signal"), .noise = json.at("noise")};
  } catch (const nlohmann::ordered_json::exception& error) {
    throw DataError("[{}] the averages of the noise scale cannot be read: {}", where, error.what());
  }
}

void NoiseScale::add(std::span<const NoiseSquares> squares, double tokens) {
  double signal = 0, noise = 0;
  bool any = false;
  for (const NoiseSquares& one : squares) {
    if (one.parts < 2 || !std::isfinite(one.part) || !std::isfinite(one.whole)) continue;
    // Squares of a gradient of B tokens are |G|² + noise / B.
    const double small = tokens / one.parts;
    signal += (tokens * one.whole - small * one.part) / (tokens - small);
    noise += (one.part - one.whole) / (1 / small - 1 / tokens);
    any = true;
  }
  if (!any || tokens <= 0) return;
  // Both averages begin at 0: their ratio needs no correction.
  state_.signal = kKeep * state_.signal + (1 - kKeep) * signal;
  state_.noise = kKeep * state_.noise + (1 - kKeep) * noise;
  ++state_.measured;
}

std::optional<double> NoiseScale::tokens() const {
  if (state_.measured < kFewest || state_.signal <= 0 || state_.noise <= 0) return std::nullopt;
  return state_.noise / state_.signal;
}

}  // namespace strata::training
