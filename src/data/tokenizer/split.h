// Cutting a text at the matches of a pattern, with the behaviours of the Hugging Face library's Split.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/scanners.h"

namespace strata::data {

struct Piece {
  size_t begin;
  size_t end;
};

struct Match {
  Piece at;
  bool is_match;  // false: a gap between matches
};

// A literal text, a class of single characters, a pattern with a scanner, or any other expression.
struct LiteralPattern {
  std::string text;
};
struct CharacterPattern {
  bool (*contains)(uint32_t code_point);
};
using Pattern = std::variant<LiteralPattern, CharacterPattern, KnownPattern, Regex>;

Pattern make_regex_pattern(std::string_view regex);

// Matches and the gaps between them, in order; together they are the whole text. `out` is overwritten.
void find_matches(const Pattern& pattern, std::string_view text, std::vector<Match>& out);

enum class SplitBehaviour { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Appends the pieces of `matches`, moved by `offset`, without empty ones. May change `matches`.
void apply_behaviour(SplitBehaviour behaviour, std::vector<Match>& matches, size_t offset,
                     std::vector<Piece>& out);

}  // namespace strata::data
