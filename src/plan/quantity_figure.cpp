#include "plan/quantity_figure.h"

#include <cmath>
#include <span>

#include "base/quantity.h"

namespace strata::planning {
namespace {

constexpr Unit kSizes[] = {{"B", 1},     {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                           {"PB", 1e15}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr Unit kBandwidths[] = {{"B/s", 1},        {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},
                                {"TB/s", 1e12},    {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40}, {"Mb/s", 1e6 / 8},
                                {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8}};
constexpr Unit kRates[] = {{"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
                           {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                           {"s", 1},     {"min", 60},  {"h", 3600},  {"d", 86400}};
constexpr Unit kPowers[] = {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}};

std::span<const Unit> units_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::kBytes:
      return kSizes;
    case Quantity::kBytesPerSecond:
      return kBandwidths;
    case Quantity::kFlops:
      return kRates;
    case Quantity::kSeconds:
      return kTimes;
    case Quantity::kWatts:
      return kPowers;
    default:
      return {};
  }
}

}  // namespace

const QuantityRule& rule_of(Quantity quantity) {
  // In the order of the enumeration. The upper limits catch a wrong unit, not a large machine.
  static constexpr QuantityRule kRules[] = {
      {"a size above 0 such as \"80 GB\"", 1, 1e18, false},
      {"a bandwidth above 0 such as \"450 GB/s\" or \"400 Gb/s\"", 1, 1e18, false},
      {"a rate such as \"989 TFLOP/s\", or 0 for none", 1, 1e21, true},
      {"a time such as \"5 us\" or \"2 min\"", 1e-12, 1e9, true},
      {"a power such as \"700 W\"", 0.1, 1e9, true},
      {"a fraction above 0 and at most 2", 1e-6, 2, false},
      {"a number of at least 0", 1e-12, 1e15, true},
      {"dollars of at least 0", 1e-9, 1e9, true},
  };
  return kRules[static_cast<size_t>(quantity)];
}

std::optional<double> quantity_of(const ConfigValue& value, Quantity quantity) {
  double number = 0.0;
  if (const auto* integer = value.get_if<int64_t>()) {
    number = static_cast<double>(*integer);
  } else if (const auto* floating = value.get_if<double>()) {
    number = *floating;
  } else if (const auto* text = value.get_if<std::string>()) {
    const std::optional<double> with_unit = in_units(*text, units_of(quantity));
    if (!with_unit) return std::nullopt;
    number = *with_unit;
  } else {
    return std::nullopt;
  }
  const QuantityRule& rule = rule_of(quantity);
  if (number == 0 && rule.zero) return 0.0;
  if (!(number >= rule.least && number <= rule.most)) return std::nullopt;
  return number;
}

}  // namespace strata::planning
