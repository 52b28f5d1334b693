// Chooses the tests of a program that one of several processes runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::testing_runner {

// Process `index` of `count`, both as in "3/8": the third of eight.
struct Shard {
  int index = 1;
  int count = 1;
};

// Parses "3/8". Empty if the text has another form or names no shard.
std::optional<Shard> parse_shard(std::string_view text);

// The names of a consecutive range: every name is in one shard, and sizes differ by one at most. Neighbours
// stay together because they share what a program computes once, such as the losses of one rank.
std::vector<std::string> tests_of(const Shard& shard, const std::vector<std::string>& names);

// A GoogleTest filter that matches these names only, also if there are none.
std::string filter_of(const std::vector<std::string>& names);

}  // namespace strata::testing_runner
