// Finds places to cut a text such that the ids of the parts are the ids of the whole.
#pragma once

#include <cstddef>
#include <string_view>

#include "data/tokenizer/added_tokens.h"

namespace strata::data {

// The first place at or after `from` (0 < place < text.size()) at which every known pattern starts a piece,
// whatever is on either side; text.size() if there is none. It is either
//   before a space between a character other than white space and a letter, or
//   after a line feed between such a character and a letter.
// No piece of these patterns holds a space after a character other than white space, and none holds a letter
// after a line feed. Look-ahead (runs of white space, contractions, a prefix before a letter) finds the same
// at a part's end as at the space or the letter that follows. Canonical composition does not reach across
// either place, since a space and a line feed compose with nothing before them, nor a letter with a line
// feed.
size_t find_cut(std::string_view text, size_t from);

// Whether an added token could span such a place, or strip white space there.
bool may_cross_cut(const AddedToken& token);

}  // namespace strata::data
