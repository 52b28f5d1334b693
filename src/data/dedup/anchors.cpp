#include "data/dedup/anchors.h"

#include <bit>

#include "base/error.h"

namespace strata::data::dedup {
namespace {

constexpr uint64_t kBase = 0x9E3779B97F4A7C15u;  // odd, with well mixed bits

// The polynomial's low bits depend on few bytes' bits: mixed, they order k-grams at random.
uint64_t mixed(uint64_t h) {
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

uint64_t byte_value(char c) {
  return static_cast<uint8_t>(c) + uint64_t{1};
}

}  // namespace

AnchorFinder::AnchorFinder(size_t window)
    : window_(window), gram_(window / 2), grams_(window - gram_ + 1), leaving_(1) {
  STRATA_CHECK(window >= 16 && window <= 65536, "a window of {} bytes", window);
  for (size_t i = 0; i < gram_; ++i) leaving_ *= kBase;
  ring_.resize(std::bit_ceil(grams_));
}

void AnchorFinder::find(std::string_view text, std::vector<AnchorRun>& runs) {
  if (text.size() < window_) return;
  const size_t mask = ring_.size() - 1;
  uint64_t rolling = 0;
  for (size_t i = 0; i + 1 < gram_; ++i) rolling = rolling * kBase + byte_value(text[i]);
  const size_t total = text.size() - gram_ + 1;
  uint64_t least = ~uint64_t{0};
  size_t least_at = 0;
  bool open = false;  // the last run has the current anchor
  for (size_t at = 0; at < total; ++at) {
    rolling = rolling * kBase + byte_value(text[at + gram_ - 1]);
    if (at > 0) rolling -= byte_value(text[at - 1]) * leaving_;
    const uint64_t hash = mixed(rolling);
    ring_[at & mask] = hash;
    if (hash <= least) {
      least = hash;
      least_at = at;
      open = false;
    } else if (at - least_at >= grams_) {
      // The anchor left the window: look for the least of those that are in it.
      least = ~uint64_t{0};
      for (size_t i = at + 1 - grams_; i <= at; ++i) {
        if (ring_[i & mask] <= least) {
          least = ring_[i & mask];
          least_at = i;
        }
      }
      open = false;
    }
    if (at + 1 < grams_) continue;
    const size_t begin = at + 1 - grams_;
    if (open) {
      ++runs.back().count;
    } else {
      runs.push_back({least, static_cast<uint32_t>(begin), 1, static_cast<uint16_t>(least_at - begin)});
      open = true;
    }
  }
}

}  // namespace strata::data::dedup
