// Long repeated spans (after Lee et al. 2022, without a suffix array): any L bytes that occurred before,
// elsewhere in the corpus or earlier in the same text, are cut out, and the first occurrence stays.
//
// The rule. A window is L bytes of one text. Windows are ordered by document and by position in it. A window
// is cut if the first window with the same bytes is in another document or ends before it begins. The union
// of these windows is cut from a text, drawn in to the bounds of words (within 32 bytes) and of characters.
// Nothing in this depends on how the corpus was cut into parts, on memory or on threads.
//
// How. A suffix array of a corpus larger than memory needs either eight bytes of memory a byte of text or
// chunks whose bounds would show in the result. Instead every window has an anchor, chosen only by its bytes
// (anchors.h); the records hold the anchors and the texts. Anchors that occur once, nearly all of them in a
// corpus without duplicates, are done with; of the others the windows are hashed and compared byte for byte
// with their first occurrence.
//
// A document of which nothing is left but white space is dropped: no_text_left.
//
// State on disk: the texts and 16 bytes an anchor, together about 1.7 times the text with L = 100. decide()
// sorts 24 bytes an anchor, and 24 a window of those anchors that more documents share than memory holds;
// texts are mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

// Counters: spans_removed, bytes_removed, documents_changed.
std::unique_ptr<CorpusStage> make_substring_stage(int64_t length_threshold);

// The part of a span that can be cut without leaving halves of words or characters; it may be empty.
TextSpan whole_words(std::string_view text, TextSpan span);

}  // namespace strata::data::dedup
