// The formats in which devices multiply matrices, and rates by format.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata::hardware {

enum class Precision { kFp32, kTf32, kBf16, kFp16, kFp8, kFp4 };
inline constexpr size_t kPrecisions = 6;
inline constexpr std::array kAllPrecisions{Precision::kFp32, Precision::kTf32, Precision::kBf16,
                                           Precision::kFp16, Precision::kFp8,  Precision::kFp4};
std::string_view to_string(Precision precision);  // "bf16"
std::optional<Precision> parse_precision(std::string_view name);

// That of a node's GEMMs, from its dtype as rates are stored under: "bf16" or "f32".
constexpr Precision precision_of(std::string_view dtype) {
  return dtype == "bf16" ? Precision::kBf16 : Precision::kFp32;
}

// A value for each format.
template <typename T>
struct ByPrecision {
  std::array<T, kPrecisions> values = {};
  constexpr T& operator[](Precision precision) { return values[static_cast<size_t>(precision)]; }
  constexpr const T& operator[](Precision precision) const { return values[static_cast<size_t>(precision)]; }
  constexpr auto begin() { return values.begin(); }
  constexpr auto end() { return values.end(); }
  constexpr auto begin() const { return values.begin(); }
  constexpr auto end() const { return values.end(); }
  friend bool operator==(const ByPrecision&, const ByPrecision&) = default;
};
// FLOP/s; 0: not known, or the device does not have the format.
using Rates = ByPrecision<double>;

}  // namespace strata::hardware
