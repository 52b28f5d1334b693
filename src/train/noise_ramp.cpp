#include "train/noise_ramp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace strata::training {

NoiseRamp::NoiseRamp(std::vector<int64_t> sizes) : sizes_(std::move(sizes)), batch_(sizes_.front()) {}

NoiseRamp::NoiseRamp(std::vector<int64_t> sizes, const nlohmann::json& state) : NoiseRamp(std::move(sizes)) {
  const auto number = [&](const char* name) {
    if (!state.is_object() || !state.contains(name) || !state.at(name).is_number_integer())
      throw ConfigError("[noise ramp] found a state without \"{}\", expected a whole number", name);
    return state.at(name).get<int64_t>();
  };
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), number("batch"));
  batch_ = found == sizes_.end() ? sizes_.back() : *found;
  above_ = number("above");
}

std::optional<int64_t> NoiseRamp::after_step(std::optional<double> noise_scale) {
  const auto next = std::upper_bound(sizes_.begin(), sizes_.end(), batch_);
  if (!noise_scale || next == sizes_.end()) return std::nullopt;
  const bool is_large = std::isfinite(*noise_scale) && *noise_scale >= kMargin * static_cast<double>(batch_);
  above_ = is_large ? above_ + 1 : 0;
  if (above_ < kSteps) return std::nullopt;
  above_ = 0;
  batch_ = *next;
  return batch_;
}

nlohmann::json NoiseRamp::state() const {
  return {{"batch", batch_}, {"above", above_}};
}

}  // namespace strata::training
