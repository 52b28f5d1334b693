#include "plan/amount.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/quantity.h"
#include "plan/laws.h"

namespace strata::planning {
namespace {

constexpr Unit kCounts[] = {{"", 1},    {"k", 1e3}, {"K", 1e3},  {"M", 1e6},
                            {"B", 1e9}, {"G", 1e9}, {"T", 1e12}, {"Q", 1e15}};
constexpr Unit kFlops[] = {
    {"", 1},         {"FLOP", 1},     {"TFLOP", 1e12},          {"PFLOP", 1e15},          {"EFLOP", 1e18},
    {"ZFLOP", 1e21}, {"YFLOP", 1e24}, {"PF-day", kPetaflopDay}, {"PF-days", kPetaflopDay}};

// Unlike in_units(), accepts an exponent, as budgets are usually written.
std::optional<double> amount_of(std::string_view text, std::span<const Unit> units) {
  std::string digits;
  for (const char c : without_spaces_around(text))
    if (c != '_') digits.push_back(c);
  // Neither a sign nor the words inf and nan.
  if (digits.empty() || !((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '.')) return std::nullopt;
  double number = 0.0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failed != std::errc()) return std::nullopt;
  const std::string_view unit = without_spaces_around(std::string_view(end, digits.data() + digits.size()));
  for (const Unit& known : units) {
    if (known.name == unit) return number * known.factor;
  }
  return std::nullopt;
}

double parse_amount(std::string_view option, std::string_view text, std::span<const Unit> units,
                    std::string_view example) {
  const std::optional<double> amount = amount_of(text, units);
  if (amount && *amount > 0 && std::isfinite(*amount)) return *amount;
  throw ConfigError("[{}] found \"{}\", expected a number above 0 such as {}", option, text, example);
}

}  // namespace

double parse_count(std::string_view option, std::string_view text) {
  return parse_amount(option, text, kCounts, "7B, 1.4T or 2e9");
}

double parse_flops(std::string_view option, std::string_view text) {
  return parse_amount(option, text, kFlops, "5.76e23, 12 ZFLOP or 3640 PF-days");
}

double parse_number(std::string_view option, std::string_view text, double least, double most,
                    std::string_view expected) {
  const std::optional<double> number = amount_of(text, std::span(kCounts).first(1));
  if (number && *number >= least && *number <= most) return *number;
  throw ConfigError("[{}] found \"{}\", expected {}", option, text, expected);
}

}  // namespace strata::planning
