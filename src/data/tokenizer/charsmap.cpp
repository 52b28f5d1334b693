#include "data/tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"

namespace strata::data {
namespace {

// A unit of the double array: whether it has a leaf, its label, the offset to its children; a leaf's unit
// holds the value.
bool has_leaf(uint32_t unit) {
  return unit >> 8 & 1;
}
uint32_t label(uint32_t unit) {
  return unit & (uint32_t{1} << 31 | 0xFF);
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & uint32_t{1} << 9) >> 6);
}
uint32_t value(uint32_t unit) {
  return unit & ~(uint32_t{1} << 31);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  uint32_t size = 0;
  if (blob.size() > sizeof size) std::memcpy(&size, blob.data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > blob.size() - sizeof size) {
    throw DataError("[tokenizer] {} is damaged: a trie of {} bytes in {} bytes", where, size, blob.size());
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data() + sizeof size, size);
  replacements_ = blob.substr(sizeof size + size);
  replacements_ += '\0';
}

std::string_view Charsmap::replacement(uint32_t at) const {
  return at < replacements_.size() ? std::string_view(replacements_.data() + at) : std::string_view();
}

template <typename Visit>
void Charsmap::walk(std::string_view text, Visit visit) const {
  if (units_.empty()) return;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size() || !visit(Match{i + 1, replacement(value(units_[node]))})) return;
  }
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  std::optional<Match> found;
  walk(text, [&](const Match& match) { return found = match, true; });
  return found;
}

std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  std::optional<Match> found;
  walk(text, [&](const Match& match) { return found = match, false; });
  return found;
}

}  // namespace strata::data
