// Merge rules of vocabularies that hold tokens and ranks but no merges: tiktoken, tekken, SentencePiece BPE.
//
// There any two neighbours merge whose joined text is a token; the token of the lowest rank first, the
// leftmost of equals. What happens inside a token's text does not depend on what stands around it, so a token
// can only ever come from the one pair that its own text ends in: one rule a token says the same as all
// pairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/merge_table.h"

namespace strata::data {

struct RankedToken {
  std::string_view text;
  int32_t id;
  uint32_t rank;
};

struct IdMerge {
  int32_t left;
  int32_t right;
  MergeRule rule;
};

enum class MergeUnit { kByte, kCharacter };  // what a text starts as

// A token that its text does not lead to gets no rule. DataError naming `where` when a token holds a byte or
// character that is no token itself.
std::vector<IdMerge> merges_by_rank(const std::vector<RankedToken>& tokens, MergeUnit unit,
                                    const std::string& where);

}  // namespace strata::data
