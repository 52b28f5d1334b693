// Counting the pieces of a corpus on all compute threads.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "data/tokenizer/scanners.h"
#include "data/tokenizer/word_counts.h"

namespace strata::data {

// Returns the next text of a corpus, or false at its end. A text is a whole file or document: its lines are
// taken one by one, each with its line ending, and no line continues into the next text. The view needs to
// live only until the next call.
using TextSource = FunctionRef<bool(std::string_view&)>;

struct CorpusCounts {
  WordCounts words;
  int64_t texts = 0;
  int64_t bytes = 0;
};

// The same counts for any number of threads. With nfc each line is brought to that form first. `check` is
// asked every few MB.
CorpusCounts count_words(TextSource texts, const SplitPreset& split, FunctionRef<void()> check);

}  // namespace strata::data
