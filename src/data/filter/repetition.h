// Counting of repeated lines, paragraphs and n-grams, as datatrove's Gopher repetition filter defines them.
//
// Things are compared by 64-bit hashes, so two different ones count as equal with a probability of 2^-64 a
// pair: for a document of a million words about 10^-8. Everything else is exact.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/words.h"

namespace strata::data {

// The first place of each key, in a flat table that is used again and again.
class FirstPlaces {
 public:
  void reset(size_t items);
  // The place of the key's first occurrence, which is `place` if the key is new. `keys[p]` must be the key of
  // every first place p.
  uint32_t find(uint64_t key, const uint64_t* keys, uint32_t place) {
    for (size_t slot = key & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot] == kFree) {
        slots_[slot] = place;
        return place;
      }
      if (keys[slots_[slot]] == key) return slots_[slot];
    }
  }

 private:
  static constexpr uint32_t kFree = ~uint32_t{0};
  std::vector<uint32_t> slots_;
  size_t mask_ = 0;
};

// Finds keys that may have come more than once: all that did, and few others. No lookup depends on the result
// of another.
class ComeTwice {
 public:
  void reset(size_t items);
  void add(uint64_t key) {
    uint8_t& slot = slots_[key & mask_];
    slot = static_cast<uint8_t>(slot << 1 | 1);
  }
  bool may_have(uint64_t key) const { return slots_[key & mask_] > 1; }

 private:
  std::vector<uint8_t> slots_;  // 0, 1, and more than that from the second key on
  size_t mask_ = 0;
};

// The second and later occurrences of each item.
struct Duplicates {
  int64_t items = 0;
  int64_t code_points = 0;
};

class RepetitionCounter {
 public:
  Duplicates count_duplicates(std::span<const std::string_view> items);

  // The words whose n-grams the next functions count; they must stay until then.
  void set_words(std::span<const Word> words);

  // The most frequent n-gram: its length in code points, with a space between words, times its number. Of
  // several as frequent, the one seen first. To be asked for in rising order of n from 2 on; 0 for less than
  // n words.
  int64_t top_n_gram(size_t n);

  // Code points, less spaces, of n-grams that were seen before, from left to right without overlap. n >= 5.
  // N-grams are compared as words joined without spaces.
  int64_t duplicated_n_grams(size_t n);

 private:
  void hash_words();
  void find_first_candidates(size_t n);
  void find_longer_candidates(size_t n);
  void keep_repeated(int shift);
  void find_repeated_starts();

  std::span<const Word> words_;
  FirstPlaces places_;
  ComeTwice twice_;
  std::vector<uint64_t> keys_;  // of items, or of the n-grams at each word
  std::vector<uint64_t> word_hashes_;
  std::vector<uint32_t> firsts_;      // the first place of the n-gram at each word
  std::vector<uint32_t> counts_;      // how often the n-gram at this first place comes
  std::vector<uint32_t> candidates_;  // places whose n-gram may come more than once, rising
  size_t top_n_ = 0;                  // the n that keys_, firsts_ and counts_ are of; 0: none
  size_t duplicated_n_ = 0;           // the n of duplicated_n_grams that candidates_ are of; 0: none
  std::string joined_;                // the words without spaces, and some zeros
  std::vector<uint32_t> starts_;      // of each word in joined_
  std::vector<uint32_t> lengths_;     // code points before each word
  std::vector<uint8_t> repeated_;     // the next N bytes may occur elsewhere too
  bool has_starts_ = false;
};

}  // namespace strata::data
