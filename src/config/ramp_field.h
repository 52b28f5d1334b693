// Maps ramps to keys. Internal to tables.cpp.
#pragma once

#include "config/fields.h"

namespace strata::config {

// Pairs [tokens, size]; tokens may be written as "500M".
template <>
struct FieldType<Ramp> {
  static constexpr auto kBase = ValueShape::Base::kRamp;
  static bool read(const ConfigValue& from, const ValueShape&, Ramp& to) {
    const auto* items = from.get_if<ConfigValue::Array>();
    if (!items) return false;
    Ramp out;
    for (const ConfigValue& item : *items) {
      const auto* pair = item.get_if<ConfigValue::Array>();
      RampStep& step = out.emplace_back();
      if (!pair || pair->size() != 2 ||
          !FieldType<int64_t>::read((*pair)[0], {.least = 0, .most = kMostNumber, .counts = true},
                                    step.tokens) ||
          !FieldType<int64_t>::read((*pair)[1], {.least = 1, .most = kMostNumber, .counts = true}, step.size))
        return false;
    }
    to = std::move(out);
    return true;
  }
  static ConfigValue write(const Ramp& value, const ValueShape&) {
    ConfigValue::Array items;
    for (const RampStep& step : value)
      items.push_back(plain(ConfigValue::Array{plain(step.tokens), plain(step.size)}));
    return plain(std::move(items));
  }
};

}  // namespace strata::config
