// WordPiece, the model of BERT: from the left the longest token that fits, with a prefix ("##") after a
// word's first token. A word that cannot be cut this way, or is too long, is the unknown token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/vocabulary.h"

namespace strata::data {

struct WordPieceConfig {
  std::string where = "model";
  std::vector<StringTable::Entry> vocabulary;
  std::string unknown_token = "[UNK]";
  std::string continuing_prefix = "##";
  int64_t longest_word = 100;  // characters
};

class WordPieceModel {
 public:
  explicit WordPieceModel(const WordPieceConfig& config);  // DataError: the unknown token is missing

  void encode_piece(std::string_view piece, std::vector<int32_t>& out) const;  // appends the ids of one word

  const StringTable& vocabulary() const { return vocabulary_; }

 private:
  StringTable vocabulary_;
  ByteTrie starts_;
  ByteTrie continuations_;  // without their prefix
  int32_t unknown_id_ = 0;
  int64_t longest_word_;
};

}  // namespace strata::data
