// Clusters of connected documents, and the one of each cluster that stays: that with the most words, or the
// first of several.
#pragma once

#include <cstdint>

#include "data/dedup/scratch_array.h"

namespace strata::data::dedup {

// A union-find forest whose root is always the document that stays. 12 bytes a document.
class Clusters {
 public:
  Clusters(const Scratch& scratch, uint64_t documents)
      : parent_(scratch, "parents", documents), words_(scratch, "words", documents) {}

  // Parents are kept as differences from the document's own number, so that an array of zeros is a forest of
  // roots.
  void set_words(uint64_t document, uint32_t words) { words_[document] = words; }
  uint32_t words(uint64_t document) { return words_[document]; }

  uint64_t find(uint64_t document) {
    uint64_t parent = document + parent_[document];
    while (parent != document) {
      const uint64_t above = parent + parent_[parent];
      parent_[document] = above - document;  // path halving
      document = above;
      parent = document + parent_[document];
    }
    return document;
  }

  void join(uint64_t a, uint64_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return;
    const bool a_stays = words_[a] != words_[b] ? words_[a] > words_[b] : a < b;
    if (a_stays) {
      parent_[b] = a - b;
    } else {
      parent_[a] = b - a;
    }
  }

 private:
  ScratchArray<uint64_t> parent_;
  ScratchArray<uint32_t> words_;
};

}  // namespace strata::data::dedup
