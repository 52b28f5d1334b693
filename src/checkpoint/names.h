// Lists of names for messages.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::checkpoint {

// The candidate with the smallest edit distance to `name`; empty if none is close.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// "'a', 'b' and 17 more".
std::string list_names(std::span<const std::string> names, size_t at_most = 8);

// Whether `name` matches a pattern with * and ?.
bool matches(std::string_view name, std::string_view pattern);

}  // namespace strata::checkpoint
