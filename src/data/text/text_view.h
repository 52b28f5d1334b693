// A document's text with what the stages ask of it, computed once and kept until the text changes: words by
// either rule, lines, lengths in code points. One object a thread, used for one document after another, so
// that nothing is allocated after the first few.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

// How words are counted. kWhitespace: Python's str.split(). kSpacy: the tokens of spaCy's blank English
// tokenizer, stripped, empty ones left out (what datatrove counts).
enum class WordRule { kWhitespace, kSpacy };

struct Word {
  std::string_view bytes;
  uint32_t code_points = 0;
  bool symbol = false;  // every character is punctuation (datatrove's PUNCTUATION_SET)
  bool alpha = false;   // holds a character of category L
};

class TextView {
 public:
  TextView();
  ~TextView();
  TextView(TextView&&) noexcept;
  TextView& operator=(TextView&&) noexcept;

  // Valid UTF-8. Keeps the string by swapping: `text` gets an old buffer back.
  void reset(std::string& text);
  // The text becomes this; what was computed is forgotten.
  void replace(std::string& text);
  void release(std::string& text);  // gives the text back, by swapping

  std::string_view bytes() const;
  int64_t code_points() const;                       // len(text)
  std::span<const Word> words(WordRule rule);        // of the whole text
  std::span<const std::string_view> split_lines();   // str.split("\n")
  std::span<const std::string_view> python_lines();  // str.splitlines()
  // The text simplified for near-duplicates (lower case, numbers 0, no punctuation or marks), and its words.
  std::string_view simplified();
  std::span<const Word> simplified_words(WordRule rule);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::data
