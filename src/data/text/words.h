// Words of a text and what filters ask of each.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::data {

// How words are counted. kWhitespace: Python's str.split(). kSpacy: the tokens of spaCy's blank English
// tokenizer, stripped, empty ones left out (what datatrove counts).
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

}  // namespace strata::data
