// The texts that substring records hold, by number of document.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/dedup/anchors.h"
#include "data/dedup/record_file.h"

namespace strata::data::dedup {

// Columns of a block: u64 ends of the documents' texts, u64 ends of their runs, the texts, the runs.
struct SubstringBlock {
  std::span<const uint64_t> text_ends, run_ends;
  std::span<const char> texts;
  std::span<const AnchorRun> runs;

  SubstringBlock(const RecordFile::Block& block, BlockCursor cursor)
      : text_ends(cursor.column<uint64_t>(block.documents)),
        run_ends(cursor.column<uint64_t>(block.documents)) {
    if (!std::is_sorted(text_ends.begin(), text_ends.end()) ||
        !std::is_sorted(run_ends.begin(), run_ends.end())) {
      cursor.fail("the texts of a block are not in order");
    }
    if (block.documents == 0) return;
    texts = cursor.column<char>(text_ends.back());
    runs = cursor.column<AnchorRun>(run_ends.back());
  }
  std::string_view text(size_t row) const {
    const uint64_t begin = row == 0 ? 0 : text_ends[row - 1];
    return {texts.data() + begin, text_ends[row] - begin};
  }
  std::span<const AnchorRun> runs_of(size_t row) const {
    const uint64_t begin = row == 0 ? 0 : run_ends[row - 1];
    return runs.subspan(begin, run_ends[row] - begin);
  }
};

class SubstringTexts {
 public:
  explicit SubstringTexts(const Records& records) {
    for (uint32_t part = 0; part < records.parts(); ++part) {
      files_.push_back(records.open(part));
      uint64_t first = records.first_of(part);
      for (const RecordFile::Block& block : files_.back().blocks()) {
        if (block.documents > 0)
          blocks_.push_back({first, SubstringBlock(block, files_.back().cursor(block))});
        first += block.documents;
      }
    }
  }

  std::string_view text(uint64_t document) const {
    const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), document,
                                        [](uint64_t d, const Placed& placed) { return d < placed.first; });
    const Placed& placed = *(after - 1);
    return placed.block.text(document - placed.first);
  }

 private:
  struct Placed {
    uint64_t first;  // document
    SubstringBlock block;
  };
  std::vector<RecordFile> files_;
  std::vector<Placed> blocks_;
};

}  // namespace strata::data::dedup
