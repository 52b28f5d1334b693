#include "config/values.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/quantity.h"

namespace strata::config {
namespace {

constexpr auto kMaxExact = static_cast<double>(kMostExact);

constexpr std::array kCountUnits = {Unit{"", 1},    Unit{"k", 1e3}, Unit{"K", 1e3}, Unit{"M", 1e6},
                                    Unit{"B", 1e9}, Unit{"G", 1e9}, Unit{"T", 1e12}};
constexpr std::array kTimeUnits = {
    Unit{"", 1},        Unit{"s", 1},        Unit{"sec", 1},     Unit{"second", 1},   Unit{"seconds", 1},
    Unit{"m", 60},      Unit{"min", 60},     Unit{"minute", 60}, Unit{"minutes", 60}, Unit{"h", 3600},
    Unit{"hour", 3600}, Unit{"hours", 3600}, Unit{"d", 86400},   Unit{"day", 86400},  Unit{"days", 86400}};

std::optional<int64_t> whole(std::optional<double> value) {
  if (!value || *value > kMaxExact || *value != std::floor(*value)) return std::nullopt;
  return static_cast<int64_t>(*value);
}

// "1:30:00" or "30:00", as schedulers write limits.
std::optional<Duration> parse_clock(std::string_view text) {
  double seconds = 0;
  for (size_t parts = 0; parts < 3; ++parts) {
    const size_t colon = text.find(':');
    const auto part = whole(in_units(text.substr(0, colon), std::array{Unit{"", 1}}));
    if (!part || (parts > 0 && *part >= 60)) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*part);
    if (colon == std::string_view::npos) return Duration{seconds};
    text.remove_prefix(colon + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_count(std::string_view text) {
  return whole(in_units(text, kCountUnits));
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto bytes = parse_byte_size(text);
  if (!bytes || *bytes < 1) return std::nullopt;
  return Bytes{*bytes};
}

std::optional<Duration> parse_duration(std::string_view text) {
  std::optional<Duration> duration;
  if (text.find(':') != std::string_view::npos) {
    duration = parse_clock(without_spaces_around(text));
  } else if (const auto seconds = in_units(text, kTimeUnits)) {
    duration = Duration{*seconds};
  }
  if (!duration || duration->seconds <= 0 || duration->seconds > static_cast<double>(kMostSeconds))
    return std::nullopt;
  return duration;
}

std::optional<Interval> parse_interval(std::string_view text) {
  text = without_spaces_around(text);
  if (text == "auto") return kAutoInterval;
  if (text == "never") return Interval{};
  for (const std::string_view word : {"steps", "step", "tokens", "token"}) {
    if (!text.ends_with(word)) continue;
    const auto count = parse_count(text.substr(0, text.size() - word.size()));
    if (!count || *count < 1 || *count > kMostCount) return std::nullopt;
    return Interval{.kind = word[0] == 's' ? Interval::Kind::kSteps : Interval::Kind::kTokens,
                    .count = *count,
                    .seconds = 0};
  }
  const auto parts = number_and_unit(text);
  if (!parts || parts->second.empty()) return std::nullopt;
  const auto duration = parse_duration(text);
  if (!duration || duration->seconds <= 0) return std::nullopt;
  return Interval{.kind = Interval::Kind::kSeconds, .count = 0, .seconds = duration->seconds};
}

std::optional<Range> parse_range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = parse_count(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_count(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return Range{*first, *last};
}

std::string to_string(const Bytes& bytes) {
  if (bytes.count > 0) {
    for (const Unit& unit :
         {Unit{"GiB", 1073741824.0}, Unit{"MiB", 1048576.0}, Unit{"GB", 1e9}, Unit{"MB", 1e6}}) {
      const auto factor = static_cast<int64_t>(unit.factor);
      if (bytes.count % factor == 0) return fmt::format("{}{}", bytes.count / factor, unit.name);
    }
  }
  return fmt::format("{}B", bytes.count);
}

std::string to_string(const Duration& duration) {
  for (const Unit& unit : {Unit{"h", 3600}, Unit{"min", 60}}) {
    const double count = duration.seconds / unit.factor;
    if (count >= 1 && count == std::floor(count)) return fmt::format("{}{}", count, unit.name);
  }
  // Fixed notation: the parser above takes no exponents.
  std::string text = fmt::format("{}", duration.seconds);
  if (text.find('e') != std::string::npos) text = fmt::format("{:.9f}", duration.seconds);
  return text + "s";
}

std::string to_string(const Interval& interval) {
  switch (interval.kind) {
    case Interval::Kind::kAuto:
      return "auto";
    case Interval::Kind::kNever:
      return "never";
    case Interval::Kind::kSteps:
      return fmt::format("{} steps", interval.count);
    case Interval::Kind::kSeconds:
      return to_string(Duration{interval.seconds});
    case Interval::Kind::kTokens:
      return fmt::format("{} tokens", interval.count);
  }
  return "";
}

}  // namespace strata::config
