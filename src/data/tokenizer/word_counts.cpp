#include "data/tokenizer/word_counts.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace strata::data {

WordCounts::WordCounts() : slots_(size_t{1} << 14), mask_(slots_.size() - 1) {}

void WordCounts::add(std::string_view word, int64_t count) {
  add(word, hash64(word), count);
}

void WordCounts::add(const WordCounts& other) {
  for (const Word& word : other.words_) add(other.text(word), word.hash, word.count);
}

void WordCounts::add(std::string_view word, uint64_t hash, int64_t count) {
  size_t at = hash & mask_;
  for (; slots_[at] != 0; at = (at + 1) & mask_) {
    Word& known = words_[slots_[at] - 1];
    if (known.hash == hash && known.size == word.size() &&
        std::memcmp(bytes_.data() + known.offset, word.data(), word.size()) == 0) {
      known.count += count;
      return;
    }
  }
  if (words_.size() >= std::numeric_limits<uint32_t>::max() - 1) {
    throw DataError("[tokenizer] the text has more than 4 billion distinct pieces; train on a sample of it");
  }
  words_.push_back({hash, bytes_.size(), count, word.size()});
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  slots_[at] = static_cast<uint32_t>(words_.size());
  if (words_.size() * 2 > slots_.size()) grow();
}

void WordCounts::grow() {
  slots_.assign(slots_.size() * 4, 0);
  mask_ = slots_.size() - 1;
  for (size_t i = 0; i < words_.size(); ++i) {
    size_t at = words_[i].hash & mask_;
    while (slots_[at] != 0) at = (at + 1) & mask_;
    slots_[at] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace strata::data
