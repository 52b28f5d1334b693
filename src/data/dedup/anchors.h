// Where to look for repeated text: every window of L bytes has one anchor, the position of the k-gram in it
// with the least hash (of equal ones the last). Windows with the same bytes have their anchor at the same
// place and with the same hash, so equal windows are found among those whose anchors have equal hashes, and
// neighbouring windows mostly share theirs: one anchor in about (L - k + 2) / 2 bytes (winnowing: Schleimer,
// Wilkerson, Aiken 2003).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::data::dedup {

// Windows begin .. begin + count - 1 of a text, which have their anchor at begin + offset.
struct AnchorRun {
  uint64_t hash = 0;
  uint32_t begin = 0;
  uint16_t count = 0;
  uint16_t offset = 0;
};

class AnchorFinder {
 public:
  explicit AnchorFinder(size_t window);  // from 16 to 65,536 bytes
  // Runs of all windows, in order; none for a text shorter than one. Appended.
  void find(std::string_view text, std::vector<AnchorRun>& runs);

 private:
  size_t window_, gram_, grams_;  // bytes of a window and of a k-gram, k-grams in a window
  uint64_t leaving_;              // weight of the oldest byte of a k-gram
  std::vector<uint64_t> ring_;    // hashes of the last k-grams
};

}  // namespace strata::data::dedup
