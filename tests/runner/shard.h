// Selects the tests that one of several processes of a test program runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::testing_runner {

// Process `index` of `count`; "3/8" is the third of eight.
struct Shard {
  int index = 1;
  int count = 1;
};

// Parses "3/8". Empty if the text has another form or is not a valid shard.
std::optional<Shard> parse_shard(std::string_view text);

// A consecutive range of names: every name is in one shard, and sizes differ by one at most. Ranges are
// consecutive because neighbors share values that a program computes once, such as the losses of one rank.
std::vector<std::string> tests_of(const Shard& shard, const std::vector<std::string>& names);

// A GoogleTest filter that matches exactly these names, even if there are none.
std::string filter_of(const std::vector<std::string>& names);

}  // namespace strata::testing_runner
