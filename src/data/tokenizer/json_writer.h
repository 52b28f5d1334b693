// A byte-level BPE as a tokenizer.json, in the layout of the Hugging Face library's pretty printer, key for
// key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/scanners.h"

namespace strata::data {

struct TokenName {
  std::string_view text;  // in the byte alphabet; special tokens unchanged
  int32_t id;
};

// The special tokens before and after a text, or after each of two; ids below 0: none.
struct TemplateEnds {
  TokenName begin{{}, -1}, end{{}, -1};
};

// The first `special_tokens` of the tokens are special. Merges in the order of their ranks.
std::string write_byte_level_json(const std::vector<TokenName>& tokens,
                                  const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                                  size_t special_tokens, const SplitPreset& split, bool ignore_merges,
                                  const TemplateEnds& ends = {});

struct ScoredToken {
  std::string text;
  double score;
};

// A unigram model with byte fallback and U+2581 for spaces; <unk> is token 0. The first `special_tokens` of
// the tokens are special.
std::string write_unigram_json(const std::vector<ScoredToken>& tokens, size_t special_tokens);

}  // namespace strata::data
