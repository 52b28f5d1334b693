// The files of data/planning, compiled into the program (builtin_data.cpp.in).
#pragma once

#include <span>
#include <string_view>

namespace strata::planning {

struct BuiltinFile {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltinFile> builtin_files();

}  // namespace strata::planning
