// Where a text may be cut so that its parts, encoded one by one, give the ids of the whole.
#pragma once

#include <cstddef>
#include <string_view>

#include "data/tokenizer/added_tokens.h"

namespace strata::data {

// The first place at or behind `from` (0 < place < text.size()) where every known pattern starts a piece,
// whatever stands on either side; text.size() where there is none. It is either
//   before a space that stands between a character that is no white space and a letter, or
//   behind a line feed that stands between such a character and a letter.
// No piece of these patterns holds a space behind another character than white space, and none holds a letter
// behind a line feed. What looks ahead (runs of white space, contractions, a prefix before a letter) finds
// the same on a part's end as on the space or the letter that follows. Canonical composition does not reach
// across either place, since a space and a line feed compose with nothing before them, nor a letter with a
// line feed.
size_t find_cut(std::string_view text, size_t from);

// Whether an added token could lie across such a place, or take white space there with it.
bool may_cross_cut(const AddedToken& token);

}  // namespace strata::data
