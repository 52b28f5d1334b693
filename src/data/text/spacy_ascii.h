// The prefix, suffix and infix rules of spacy_tables.inc where only ASCII is involved, written out: they find
// what the patterns find, without a machine for regular expressions.
#pragma once

#include <cstddef>
#include <string_view>

namespace strata::data {

inline constexpr int kAskPattern = -1;

// Bytes of the prefix or suffix that is taken from the run (not empty), 0 for none; kAskPattern where these
// rules do not tell.
int ascii_prefix(std::string_view run);
int ascii_suffix(std::string_view run);

// The first infix from `from` on; of a run of ASCII.
bool find_ascii_infix(std::string_view run, size_t from, size_t& begin, size_t& end);

}  // namespace strata::data
