// Exact duplicates of documents, by a 128-bit hash of the text: the first of equal ones stays, the others are
// dropped as exact_duplicate and name it. Two different texts among 10^9 have the same hash with odds of
// 10^-21.
//
// State: 16 bytes a document on disk; decide() holds 8 bytes a document, and sorts 24 bytes a document.
#pragma once

#include <memory>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

enum class CompareText {
  kRaw,        // byte for byte
  kSimplified  // as MinHash sees it: lower case, numbers 0, no punctuation, marks or runs of white space; a
               // text that is empty then is not compared
};

std::unique_ptr<CorpusStage> make_exact_stage(CompareText compare);

}  // namespace strata::data::dedup
