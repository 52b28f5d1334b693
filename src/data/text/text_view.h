// A document's text with properties that the stages use, computed once and cached until the text changes:
// words by either rule, lines, lengths in code points. One object per thread, used for one document after
// another, so that nothing is allocated after the first few.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/words.h"

namespace strata::data {

class TextView {
 public:
  TextView();
  ~TextView();
  TextView(TextView&&) noexcept;
  TextView& operator=(TextView&&) noexcept;

  // Valid UTF-8, less than 4 GiB. Keeps the string by swapping: `text` gets an old buffer back.
  void reset(std::string& text);
  // The text becomes this; cached results are dropped.
  void replace(std::string& text);
  void release(std::string& text);  // returns the text by swapping

  std::string_view bytes() const;
  int64_t code_points();                             // len(text)
  std::span<const Word> words(WordRule rule);        // of the whole text
  std::span<const std::string_view> split_lines();   // str.split("\n")
  std::span<const std::string_view> python_lines();  // str.splitlines()
  // The text simplified for near-duplicates (lower case, numbers 0, no punctuation or marks), and its words.
  std::string_view simplified();
  std::span<const Word> simplified_words(WordRule rule);

  // Sentences of another text, for example of one line after it was changed: spaCy's sentencizer. Counts no
  // further than `limit`.
  int64_t count_sentences(std::string_view text, int64_t limit);

  // The sentences of spaCy's sentencizer, which cover the whole text (as datatrove cuts it).
  void split_sentences(std::vector<std::string_view>& sentences);

  // A scratch object of any type for a stage, one per type: it need not be empty, nor keep its content.
  template <typename T>
  T& scratch() {
    static constexpr char kType = 0;
    std::shared_ptr<void>& found = scratch_of(&kType);
    if (!found) found = std::make_shared<T>();
    return *static_cast<T*>(found.get());
  }

 private:
  std::shared_ptr<void>& scratch_of(const char* type);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::data
