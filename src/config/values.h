// The small value types of a run's configuration that TOML lacks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::config {

// A value, or a word in its place: "auto" unless the key has another ("repeat", "training").
template <typename T>
struct OrWord {
  std::optional<T> value;
  OrWord() = default;
  OrWord(T given) : value(std::move(given)) {}  // implicit, so that defaults read as in the file
  bool is_word() const { return !value.has_value(); }
  const T& operator*() const { return *value; }
  T value_or(T fallback) const { return value.value_or(std::move(fallback)); }
  bool operator==(const OrWord&) const = default;
};
template <typename T>
using Auto = OrWord<T>;

// "4GB", "512MiB" or a number of bytes.
struct Bytes {
  int64_t count = 0;
  bool operator==(const Bytes&) const = default;
};

// "90s", "10min", "2h", "1d" or a number of seconds.
struct Duration {
  double seconds = 0;
  bool operator==(const Duration&) const = default;
};

// How often something happens: "auto", "never", "200 steps" (or 200), "10min", "500M tokens".
struct Interval {
  enum class Kind { kAuto, kNever, kSteps, kSeconds, kTokens };
  Kind kind = Kind::kNever;
  int64_t count = 0;   // kSteps, kTokens: at least 1
  double seconds = 0;  // kSeconds: above 0
  bool operator==(const Interval&) const = default;
};
constexpr Interval kAutoInterval{.kind = Interval::Kind::kAuto, .count = 0, .seconds = 0};
constexpr Interval every_steps(int64_t steps) {
  return {.kind = Interval::Kind::kSteps, .count = steps, .seconds = 0};
}
// 0: not by steps.
constexpr int64_t steps_between(const Interval& interval) {
  return interval.kind == Interval::Kind::kSteps ? interval.count : 0;
}

// How many layers each stage of a pipeline has: a list, or Megatron-LM's layout string.
struct StageLayers {
  std::vector<int64_t> layers = {};
  std::string layout = {};
  bool operator==(const StageLayers&) const = default;
};

// A token by its text or by its id.
struct TokenName {
  std::string text = {};
  std::optional<int64_t> id = {};
  bool operator==(const TokenName&) const = default;
};

// From this number of tokens of the run on, a step has this size.
struct RampStep {
  int64_t tokens = 0;
  int64_t size = 0;
  bool operator==(const RampStep&) const = default;
};
using Ramp = std::vector<RampStep>;

// first to last, both included: [first, last], "first-last" or one number.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const Range&) const = default;
};

// Upper limits of meaningful numbers: counts of steps, samples and tokens; seconds (300 years); bytes, exact
// as doubles.
inline constexpr int64_t kMostCount = 1'000'000'000'000'000;
inline constexpr int64_t kMostSeconds = 10'000'000'000;
inline constexpr int64_t kMostExact = int64_t{1} << 53;

// Texts as people write them; returns nothing if `text` is invalid. Spaces may separate units from numbers.
std::optional<int64_t> parse_count(std::string_view text);  // "500M", "2B", "64k", "1_000"
std::optional<Bytes> parse_bytes(std::string_view text);    // B, kB, MB, GB, TB (powers of 1000), KiB … TiB
std::optional<Duration> parse_duration(
    std::string_view text);  // s, min, h, d and their longer names; H:MM:SS
std::optional<Interval> parse_interval(std::string_view text);
std::optional<Range> parse_range(std::string_view text);

// Texts that the functions above parse to the same value.
std::string to_string(const Bytes& bytes);
std::string to_string(const Duration& duration);
std::string to_string(const Interval& interval);

}  // namespace strata::config
