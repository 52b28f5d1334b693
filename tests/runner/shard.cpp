#include "runner/shard.h"

#include <charconv>

namespace strata::testing_runner {

std::optional<Shard> parse_shard(std::string_view text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  if (index.ec != std::errc() || index.ptr == end || *index.ptr != '/') return std::nullopt;
  const auto count = std::from_chars(index.ptr + 1, end, shard.count);
  if (count.ec != std::errc() || count.ptr != end) return std::nullopt;
  if (shard.count < 1 || shard.index < 1 || shard.index > shard.count) return std::nullopt;
  return shard;
}

std::vector<std::string> tests_of(const Shard& shard, const std::vector<std::string>& names) {
  const auto bound = [&](int index) {
    return names.begin() + static_cast<std::ptrdiff_t>(names.size() * static_cast<size_t>(index) /
                                                       static_cast<size_t>(shard.count));
  };
  return {bound(shard.index - 1), bound(shard.index)};
}

std::string filter_of(const std::vector<std::string>& names) {
  // A filter without patterns would run everything; no test has an empty name.
  if (names.empty()) return "-*";
  std::string filter;
  for (const std::string& name : names) {
    if (!filter.empty()) filter += ':';
    filter += name;
  }
  return filter;
}

}  // namespace strata::testing_runner
