// Physical quantities in catalogue files: a number in SI units, or text with a unit ("80 GB", "400 Gb/s").
#pragma once

#include <optional>
#include <string_view>

#include "base/toml.h"

namespace strata::planning {

enum class Quantity { kBytes, kBytesPerSecond, kFlops, kSeconds, kWatts, kFraction, kRate, kMoney };

// The range of a quantity.
struct QuantityRule {
  std::string_view expected;  // for messages: "a size such as \"80 GB\""
  double least;               // smallest value allowed
  double most;
  bool zero;  // whether 0 is allowed although `least` is above it
};
const QuantityRule& rule_of(Quantity quantity);

// In SI units; nullopt if the value does not have this quantity or is outside its range.
std::optional<double> quantity_of(const ConfigValue& value, Quantity quantity);

}  // namespace strata::planning
