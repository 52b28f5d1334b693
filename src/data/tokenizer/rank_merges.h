// Merge rules of vocabularies that hold tokens and ranks but no merges: tiktoken, tekken, SentencePiece BPE.
//
// There any two neighbours merge if their joined text is a token; the token of the lowest rank first, the
// leftmost of equals. Merges inside a token's text do not depend on the surrounding text, so a token can only
// ever come from the one pair at the end of merging its own text: one rule per token is equivalent to all
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

// A token that merging its text does not produce has no rule. DataError naming `where` when a token holds a
// byte or character that is not a token itself.
std::vector<IdMerge> merges_by_rank(const std::vector<RankedToken>& tokens, MergeUnit unit,
                                    const std::string& where);

}  // namespace strata::data
