// The unigram language model: of all ways to cut a piece into tokens the one with the largest sum of scores,
// found by one pass of dynamic programming over the piece.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/vocabulary.h"

namespace strata::data {

// Two libraries, two ways to round the sums, which decides between cuts of equal score.
enum class UnigramSums { kDouble, kFloat };  // Hugging Face tokenizers, SentencePiece

struct UnigramConfig {
  struct Token {
    std::string_view text;
    int32_t id;
    double score;
  };
  std::string where = "model";
  std::vector<Token> tokens;                   // those that are found in text
  std::vector<StringTable::Entry> vocabulary;  // all of them
  std::optional<int32_t> unknown_id;
  double unknown_score = 0;  // of a character outside the vocabulary
  bool byte_fallback = false;
  bool lookup_unknown = false;  // a run of unknown characters that is a token as a whole is that token
  UnigramSums sums = UnigramSums::kDouble;
};

struct UnigramScratch {
  struct Node {  // the best way to reach a position
    double score;
    int64_t from;
    int32_t id;
  };
  struct Part {
    size_t begin;
    size_t end;
    int32_t id;
  };
  std::vector<Node> nodes;
  std::vector<Part> parts;
};

class UnigramModel {
 public:
  explicit UnigramModel(const UnigramConfig& config);

  // Appends the ids of one piece. DataError when the model has no unknown token and needs one.
  void encode_piece(std::string_view piece, UnigramScratch& scratch, std::vector<int32_t>& out) const;

  const StringTable& vocabulary() const { return vocabulary_; }

 private:
  void find_best_path(std::string_view piece, UnigramScratch& scratch) const;
  void write_unknown(std::string_view text, std::vector<int32_t>& out) const;

  StringTable vocabulary_;
  ByteTrie trie_;  // values: positions in ids_ and scores_
  std::vector<int32_t> ids_;
  std::vector<double> scores_;
  std::optional<int32_t> unknown_id_;
  double unknown_score_;
  bool byte_fallback_;
  bool lookup_unknown_;
  UnigramSums sums_;
  std::array<int32_t, 256> fallback_ids_{};
};

}  // namespace strata::data
