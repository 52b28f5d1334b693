// Compiled in place of train_unigram.cpp where the SentencePiece library is missing.
#include "base/error.h"
#include "data/tokenizer/train_unigram.h"

namespace strata::data {

bool can_train_unigram() {
  return false;
}

TrainedUnigram train_unigram(TextSource, const UnigramOptions&) {
  throw ConfigError(
      "[tokenizer] a unigram model is trained by the SentencePiece library, which this program was built "
      "without; "
      "install libsentencepiece-dev and build again, or train a bpe model");
}

}  // namespace strata::data
