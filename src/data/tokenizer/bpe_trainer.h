// The merge loop of the trainer, apart from text and files. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "data/tokenizer/word_counts.h"

namespace strata::data {

struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, in the byte alphabet (special tokens unchanged)
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// Special tokens first, then the 256 bytes in the order of their characters, then one token a merge until
// there are vocab_size, or no pair occurs min_frequency times. `check` is asked between merges.
BpeVocabulary learn_merges(
    WordCounts words, int64_t vocab_size, int64_t min_frequency,
    const std::vector<std::string>& special_tokens, FunctionRef<void()> check = [] {});

}  // namespace strata::data
