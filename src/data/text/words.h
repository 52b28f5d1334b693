// Words of a text and what filters ask of each.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/text/byte_runs.h"

namespace strata::data {

// The rule for counting words. kWhitespace: Python's str.split(). kSpacy: the tokens of spaCy's blank English
// tokenizer, stripped, without empty ones (as datatrove counts).
enum class WordRule { kWhitespace, kSpacy };

struct Word {
  std::string_view bytes;
  uint32_t code_points = 0;
  bool symbol = false;       // every character is punctuation (datatrove's PUNCTUATION_SET)
  bool alpha = false;        // holds a character of category L
  bool punctuation = false;  // every character is of category P
  bool end_mark = false;     // one character, and it ends a sentence (spaCy's sentencizer)
};

// A word of these bytes (none of them white space, at least one).
Word make_word(std::string_view bytes);

// str.split(), appended to `words`.
void split_whitespace(std::string_view text, std::vector<Word>& words);

// split_whitespace() for long texts, with vector instructions. To be used for one text after another.
class WordSplitter {
 public:
  WordSplitter();
  void split(std::string_view text, std::vector<Word>& words);

 private:
  AsciiSet spaces_, letters_;
  std::vector<uint32_t> edges_;
  std::vector<uint64_t> wide_bits_, letter_bits_;
  std::vector<Word> pieces_;
};

}  // namespace strata::data
