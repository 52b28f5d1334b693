// How often each piece of a text occurs. Counts are 64-bit: a 160 GB corpus holds more than 2^31 copies of "
// the".
// Two hash tables: pieces of up to 15 bytes, nearly all of them, are stored in the table as two words of key
// (so that one memory access finds and compares them), longer ones in an arena.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "data/tokenizer/huge_pages.h"
#include "data/tokenizer/piece_cache.h"

namespace strata::data {

class WordCounts {
 public:
  WordCounts();

  void add(std::string_view word, int64_t count = 1) {
    if (word.size() > PieceCache::kLongestPiece) return add_long(word, count);
    add_short({PieceCache::make_key(word, word.data() + word.size()), count});
  }
  void add(const WordCounts& other);

  size_t size() const { return shorts_ + longs_.size(); }  // distinct words
  // visit(text, count) of each distinct word, in no particular order. The text lives until it returns.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Short& slot : short_slots_) {
      if (slot.key.high == 0) continue;
      char bytes[sizeof(Key)];
      std::memcpy(bytes, &slot.key, sizeof bytes);
      visit(std::string_view(bytes, PieceCache::size(slot.key)), slot.count);
    }
    for (const Long& word : longs_)
      visit(std::string_view(bytes_.data() + word.offset, word.size), word.count);
  }

 private:
  friend class WordQueue;
  using Key = PieceCache::Key;
  struct Short {
    Key key;  // high is 0 in a free entry: no word is empty
    int64_t count = 0;
  };
  struct Long {
    uint64_t hash;
    size_t offset;
    size_t size;
    int64_t count;
  };

  void prefetch(const Key& key) const {
    const Short* slot = &short_slots_[PieceCache::hash(key) & short_mask_];
    __builtin_prefetch(slot, 1);
    __builtin_prefetch(&slot->count, 1);  // often on the next line
  }
  void add_short(const Short& word) {
    for (size_t at = PieceCache::hash(word.key) & short_mask_;; at = (at + 1) & short_mask_) {
      Short& slot = short_slots_[at];
      if (slot.key.low == word.key.low && slot.key.high == word.key.high) {
        slot.count += word.count;
        return;
      }
      if (slot.key.high == 0) {
        slot = word;
        if (++shorts_ * 2 > short_slots_.size()) grow_short();
        return;
      }
    }
  }
  void add_long(std::string_view word, int64_t count);
  void grow_short();
  void grow_long();

  HugeVector<Short> short_slots_;
  size_t short_mask_;
  size_t shorts_ = 0;
  HugeVector<char> bytes_;
  HugeVector<Long> longs_;
  HugeVector<uint32_t> long_slots_;  // index + 1, 0: free
  size_t long_mask_;
};

// Words to be inserted into a table: each waits until a few others have come, while its entry is prefetched.
// flush() counts the waiting ones.
class WordQueue {
 public:
  explicit WordQueue(WordCounts& counts) : counts_(counts) {}
  WordQueue(const WordQueue&) = delete;
  WordQueue& operator=(const WordQueue&) = delete;

  // `end` is where the memory around the word ends: up to there it may be read.
  void add_inside(std::string_view word, const char* end) {
    if (word.size() > PieceCache::kLongestPiece) return counts_.add_long(word, 1);
    add({PieceCache::make_key(word, end), 1});
  }
  void add(const WordCounts::Short& word) {
    WordCounts::Short& place = waiting_[next_];
    next_ = (next_ + 1) % waiting_.size();
    if (place.count != 0) counts_.add_short(place);
    place = word;
    counts_.prefetch(word.key);
  }
  void flush() {
    for (WordCounts::Short& word : waiting_) {
      if (word.count != 0) counts_.add_short(word);
      word.count = 0;
    }
  }

 private:
  WordCounts& counts_;
  std::array<WordCounts::Short, 16> waiting_{};  // count 0: none
  size_t next_ = 0;
};

}  // namespace strata::data
