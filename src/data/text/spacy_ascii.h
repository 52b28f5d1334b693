// The prefix, suffix and infix rules of spacy_tables.inc for runs of ASCII only, written out: they match the
// same text as the patterns, without a regular expression engine.
#pragma once

#include <cstddef>
#include <string_view>

namespace strata::data {

inline constexpr int kAskPattern = -1;

// Bytes of the prefix or suffix that is taken from the run (not empty), 0 for none; kAskPattern if these
// rules do not decide.
int ascii_prefix(std::string_view run);
int ascii_suffix(std::string_view run);

// The first infix from `from` on; of a run of ASCII.
bool find_ascii_infix(std::string_view run, size_t from, size_t& begin, size_t& end);

}  // namespace strata::data
