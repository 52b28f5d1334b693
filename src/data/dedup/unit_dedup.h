// Cuts lines or paragraphs that occurred before, anywhere in the corpus or earlier in the same text (C4's and
// dolma's rule). Blank lines do not count as units: they stay, and are never duplicates. A document that lost
// something and has too little left is dropped: too_few_words, too_few_lines or too_few_paragraphs,
// no_text_left if only white space is left. Documents that lost nothing stay whatever their length.
//
// A line ends at "\n". A paragraph is a run of lines that are not blank. A unit goes with the separator after
// it, the last one of a text with the separator before it.
//
// Units are the same if their 64-bit hashes are: among 10^9 different ones, 0.03 pairs are taken for the same
// wrongly. State: 24 bytes a unit on disk; decide() holds a bit a unit, and sorts 16 bytes a unit.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/pipeline/stage.h"

namespace strata::data::dedup {

enum class UnitKind { kLine, kParagraph };

enum class CompareUnit {
  kLower,      // str.strip().lower(), as C4
  kSimplified  // as MinHash sees it; empty results are not compared
};

struct UnitOptions {
  UnitKind kind = UnitKind::kLine;
  CompareUnit compare = CompareUnit::kLower;
  int64_t min_unit_words = 0;  // shorter units are not compared, and stay
  int64_t min_doc_words = 50;
  int64_t min_doc_units = 3;
};

struct Unit {
  std::string_view text;  // the text to compare
  TextSpan extent;        // with the separator after it, but for the last one of a text
};
void split_units(std::string_view text, UnitKind kind, std::vector<Unit>& units);

// Counters: lines_removed or paragraphs_removed, bytes_removed, documents_changed.
std::unique_ptr<CorpusStage> make_unit_stage(const UnitOptions& options);

}  // namespace strata::data::dedup
