// Lines of the files of a run.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace strata::observe {

// Calls visit(line including its newline) for every complete line.
template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    visit(text.substr(begin, end + 1 - begin));
  }
}

// Empty for a missing file.
inline std::string read_or_empty(const Path& path) {
  return std::filesystem::exists(path) ? read_file(path) : std::string();
}

}  // namespace strata::observe
