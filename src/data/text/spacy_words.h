// Words and sentences as spaCy's blank English pipeline with its sentencizer counts them, at speed: what a
// run of characters was cut into is remembered, in bounded memory.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/text/words.h"

namespace strata::data {

class SpacyWords {
 public:
  SpacyWords();
  ~SpacyWords();
  SpacyWords(SpacyWords&&) noexcept;
  SpacyWords& operator=(SpacyWords&&) noexcept;

  // Appends the tokens of `text`, less those of white space.
  void split(std::string_view text, std::vector<Word>& words);

  // As the function below, but only what may end or begin a sentence is cut into tokens. `scratch` loses what
  // it holds.
  int64_t count_sentences(std::string_view text, int64_t limit, std::vector<Word>& scratch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sentences of `text`, whose words by SpacyWords are `words`; at least 1. Counts no further than `limit`.
// White space is a separate token here, except for one space after a word.
int64_t count_sentences(std::string_view text, std::span<const Word> words, int64_t limit);

// The same sentences as ranges of the text: each starts where the token before it ended.
void split_sentences(std::string_view text, std::span<const Word> words,
                     std::vector<std::string_view>& sentences);

}  // namespace strata::data
