// How often each piece of a text occurs: a hash table over an arena of the pieces' bytes. Counts are 64-bit:
// a 160 GB corpus holds more than 2^31 copies of " the".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

class WordCounts {
 public:
  struct Word {
    uint64_t hash;
    size_t offset;
    int64_t count;
    size_t size;
  };

  WordCounts();
  void add(std::string_view word, int64_t count = 1);
  void add(const WordCounts& other);

  const std::vector<Word>& words() const { return words_; }  // in the order of first sight
  std::string_view text(const Word& word) const { return {bytes_.data() + word.offset, word.size}; }

 private:
  void add(std::string_view word, uint64_t hash, int64_t count);
  void grow();

  std::vector<char> bytes_;
  std::vector<Word> words_;
  std::vector<uint32_t> slots_;  // word index + 1, 0: free
  size_t mask_ = 0;
};

}  // namespace strata::data
