// The parts of a tokenizer.json that a GGUF file contains. Internal to this module.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "interop/gguf.h"

namespace strata::interop {

// The format's codes for kinds of tokens.
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// tokenizer.json, and its path for messages.
struct TokenizerJson {
  const nlohmann::json& json;
  std::string where;
  int64_t vocab_size = 0;  // the model's

  [[noreturn]] void refuse(std::string_view what) const;
  // The value of a key; null if absent.
  nlohmann::json part(const char* key) const;
};

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
};

// A vocabulary of the model's size with `tokens` and tokenizer.json's added tokens. Padding ids and added
// tokens have the scores of llama.cpp's converter.
Vocabulary vocabulary_of(const TokenizerJson& tokenizer,
                         const std::vector<std::pair<int64_t, std::string>>& tokens);
void add_vocabulary(GgufFields& fields, const Vocabulary& vocabulary, bool scores);

// The pairs that BPE merges, by rank.
std::vector<std::pair<std::string, std::string>> merges_of(const nlohmann::json& bpe);

// tokenizer.ggml.model "llama": BPE with byte fallback. "t5": unigram.
void add_sentencepiece_bpe(GgufFields& fields, const TokenizerJson& tokenizer);
void add_unigram(GgufFields& fields, const TokenizerJson& tokenizer);

}  // namespace strata::interop
