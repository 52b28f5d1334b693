// The nearest known name to a mistyped one.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace strata {

// Damerau–Levenshtein distance (optimal string alignment): insertions, deletions, substitutions and swaps of
// neighbours, each counted as one.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, ignoring case and taking '-' for '_'; nothing if none is near enough to be
// meant (about a third of the letters may differ). A candidate that begins with `name` counts as near. Of
// equally near ones, the first.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace strata
