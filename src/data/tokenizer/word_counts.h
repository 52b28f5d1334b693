// How often each piece of a text occurs. Counts are 64-bit: a 160 GB corpus holds more than 2^31 copies of "
// the".
//
// Two hash tables: pieces of up to 15 bytes, nearly all there are, lie in their slots as two words of key (so
// that one memory access finds and compares them), longer ones in an arena.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/piece_cache.h"

namespace strata::data {

class WordCounts {
 public:
  struct Word {
    std::string text;
    int64_t count;
  };

  WordCounts();

  // `end` is where the memory around the word ends: up to there it may be read.
  void add_inside(std::string_view word, const char* end) {
    if (word.size() > PieceCache::kLongestPiece) return add_long(word, 1);
    add_short(PieceCache::make_key(word, end), 1);
  }
  void add(std::string_view word, int64_t count = 1) {
    if (word.size() > PieceCache::kLongestPiece) return add_long(word, count);
    add_short(PieceCache::make_key(word, word.data() + word.size()), count);
  }
  void add(const WordCounts& other);

  size_t size() const { return shorts_ + longs_.size(); }  // distinct words
  std::vector<Word> words() const;                         // in no particular order

 private:
  using Key = PieceCache::Key;
  struct Short {
    Key key;  // high is 0 in a free slot: no word is empty
    int64_t count = 0;
  };
  struct Long {
    uint64_t hash;
    size_t offset;
    size_t size;
    int64_t count;
  };

  void add_short(const Key& key, int64_t count) {
    for (size_t at = PieceCache::hash(key) & short_mask_;; at = (at + 1) & short_mask_) {
      Short& slot = short_slots_[at];
      if (slot.key.low == key.low && slot.key.high == key.high) {
        slot.count += count;
        return;
      }
      if (slot.key.high == 0) {
        slot = {key, count};
        if (++shorts_ * 2 > short_slots_.size()) grow_short();
        return;
      }
    }
  }
  void add_long(std::string_view word, int64_t count);
  void grow_short();
  void grow_long();

  std::vector<Short> short_slots_;
  size_t short_mask_;
  size_t shorts_ = 0;
  std::vector<char> bytes_;
  std::vector<Long> longs_;
  std::vector<uint32_t> long_slots_;  // index + 1, 0: free
  size_t long_mask_;
};

}  // namespace strata::data
