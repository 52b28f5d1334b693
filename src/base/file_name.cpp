#include "base/file_name.h"

#include <algorithm>

#include <fmt/core.h>

namespace strata {

std::string file_name_error(std::string_view name) {
  constexpr size_t kMostBytes = 128;  // file systems take 255, endings included
  if (name.empty()) return "is empty";
  if (name.size() > kMostBytes)
    return fmt::format("has {} bytes, at most {} can be", name.size(), kMostBytes);
  if (name.front() == '.') return "begins with a point";
  if (name.find_first_of("/\\") != name.npos) return "holds a slash";
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) return "holds a control character";
  return "";
}

}  // namespace strata
