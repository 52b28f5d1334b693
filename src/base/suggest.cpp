#include "base/suggest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace strata {
namespace {

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out.push_back(c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return out;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = folded(name);
  if (wanted.empty()) return std::nullopt;
  const size_t allowed = std::max<size_t>(1, (wanted.size() + 1) / 3);
  size_t best_distance = allowed + 1;
  std::optional<std::string> best;
  for (const std::string& candidate : candidates) {
    const std::string known = folded(candidate);
    size_t distance = edit_distance(wanted, known);
    if (wanted.size() >= 3 && known.starts_with(wanted)) distance = std::min(distance, allowed);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace strata
