// Training of a unigram model through the SentencePiece library, if the build has it.
// The resulting tokenizer is lossless: no normalization, U+2581 for a space, <0xHH> tokens for the bytes of
// every character outside the vocabulary. Id 0 is <unk>, then come the special tokens, the bytes and the
// pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/count_words.h"

namespace strata::data {

struct UnigramOptions {
  int64_t vocab_size = 0;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

struct TrainedUnigram {
  std::string json;        // a tokenizer.json
  int64_t vocab_size = 0;  // below the wished one where the text does not hold enough pieces
  int64_t bytes = 0;
};

bool can_train_unigram();  // whether this build has the library

// Lines of the text are its sentences; the library holds them all in memory. The same result for the same
// text on any machine. ConfigError: this build has no SentencePiece, or a vocabulary too small. DataError: no
// text.
TrainedUnigram train_unigram(TextSource texts, const UnigramOptions& options);

}  // namespace strata::data
