#include "base/quantity.h"

#include <charconv>
#include <string>
#include <system_error>

namespace strata {
namespace {

constexpr Unit kByteUnits[] = {{"", 1},        {"B", 1},        {"k", 1e3},     {"K", 1e3},
                               {"kB", 1e3},    {"KB", 1e3},     {"M", 1e6},     {"MB", 1e6},
                               {"G", 1e9},     {"GB", 1e9},     {"T", 1e12},    {"TB", 1e12},
                               {"Ki", 0x1p10}, {"KiB", 0x1p10}, {"Mi", 0x1p20}, {"MiB", 0x1p20},
                               {"Gi", 0x1p30}, {"GiB", 0x1p30}, {"Ti", 0x1p40}, {"TiB", 0x1p40}};
constexpr double kMostByteSize = 0x1p53;

}  // namespace

std::string_view without_spaces_around(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  text = without_spaces_around(text);
  std::string digits;
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && c != '.' && c != '_') break;
    if (c != '_') digits.push_back(c);
  }
  double number = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failed != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return std::pair{number, without_spaces_around(text.substr(at))};
}

std::optional<double> in_units(std::string_view text, std::span<const Unit> units) {
  const auto parts = number_and_unit(text);
  if (!parts) return std::nullopt;
  for (const Unit& unit : units) {
    if (unit.name == parts->second) return parts->first * unit.factor;
  }
  return std::nullopt;
}

std::optional<int64_t> parse_byte_size(std::string_view text) {
  std::optional<double> bytes = in_units(text, kByteUnits);
  if (!bytes) {
    // "1e9", as programs write large numbers.
    text = without_spaces_around(text);
    double number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || text[0] < '0' || text[0] > '9' || failed != std::errc() ||
        end != text.data() + text.size())
      return std::nullopt;
    bytes = number;
  }
  if (!(*bytes <= kMostByteSize)) return std::nullopt;
  return static_cast<int64_t>(*bytes);
}

}  // namespace strata
