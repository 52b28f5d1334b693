// What a tokenizer is made of, whatever kind of file it comes from. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/sentencepiece_decoder.h"
#include "data/tokenizer/unigram_model.h"
#include "data/tokenizer/word_piece_model.h"

namespace strata::data {

using Model = std::variant<BpeModel, UnigramModel, WordPieceModel>;

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

struct TokenizerParts {
  explicit TokenizerParts(Model m) : model(std::move(m)) {}

  std::string where;  // the file, for messages
  std::string json;   // an equivalent tokenizer.json, if the file by itself is not complete
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<SentencePieceDecoder> ids_decoder;  // in place of `decoder`
  Model model;
  std::vector<AddedToken> added_tokens;
  bool tokens_are_normalized = false;  // added tokens are stored in the file in normalized form
};

// Throw DataError for content that is damaged or holds an unsupported part. A tiktoken file needs the name of
// its split (ConfigError without).
TokenizerParts read_tiktoken(std::string_view content, std::string_view pattern, const std::string& where);
TokenizerParts read_sentencepiece(std::string_view content, const std::string& where);

}  // namespace strata::data
