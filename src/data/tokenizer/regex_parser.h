// The syntax tree of a regular expression. Internal to this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/code_point_set.h"

namespace strata::data {

enum class RegexKind {
  kSet,         // one symbol of `set`
  kSequence,    // children in order
  kChoice,      // children, the first that lets the rest match
  kRepeat,      // child[0], min to max times
  kAtomic,      // child[0], without backtracking into it
  kLookAhead,   // child[0] matches here (negated: does not)
  kLookBehind,  // the symbol before is in `set` (negated: there is none, or it is not)
  kAssertion
};
enum class RegexAssertion { kTextBegin, kTextEnd, kTextEndOrNewline, kLineBegin, kLineEnd, kWordBoundary };
enum class RegexMode { kGreedy, kLazy, kPossessive };

struct RegexNode {
  static constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();
  RegexKind kind = RegexKind::kSequence;
  CodePointSet set{};
  std::vector<RegexNode> children{};
  uint32_t min = 0;
  uint32_t max = 0;
  RegexMode mode = RegexMode::kGreedy;
  RegexAssertion assertion = RegexAssertion::kTextBegin;
  bool negated = false;
};

RegexNode parse_regex(std::string_view pattern);  // DataError naming the unsupported construct

}  // namespace strata::data
