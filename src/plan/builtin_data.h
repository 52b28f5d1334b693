// The files of data/planning, compiled into the program (builtin_data.cpp.in).
#pragma once

#include <span>
#include <string_view>

namespace strata::planning {

struct BuiltinFile {
  std::string_view name;
  std::string_view text;
};
// Chips, clusters and prices: the documents of the catalogue.
std::span<const BuiltinFile> builtin_files();
// The text of any of them, also of stacks.toml, fitted.toml, architectures.toml, curves.toml and curve_runs.csv; empty
// for another name.
std::string_view builtin_file(std::string_view name);

}  // namespace strata::planning
