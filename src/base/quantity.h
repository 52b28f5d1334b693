// Numbers with units, as people write them: "12.5 GB", "1_000k", "90 min".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace strata {

struct Unit {
  std::string_view name;
  double factor;
};

std::string_view without_spaces_around(std::string_view text);

// "12.5 GB" → 12.5 and "GB"; underscores between digits are allowed as in TOML. Neither sign nor exponent.
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text);

// The number times its unit's factor; nothing if the unit is none of these.
std::optional<double> in_units(std::string_view text, std::span<const Unit> units);

// Parses bytes, at most 2^53: "700000000", "1e9", "1kB", "1KiB", "8 GiB", "8G", "8Gi". Every size from a user
// is parsed here.
std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace strata
