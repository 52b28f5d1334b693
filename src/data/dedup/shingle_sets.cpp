#include "data/dedup/shingle_sets.h"

#include <algorithm>

namespace strata::data::dedup {

double jaccard(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  if (a.empty() && b.empty()) return 1;
  size_t common = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const bool equal = a[i] == b[j];
    common += equal;
    const bool step_a = a[i] <= b[j], step_b = b[j] <= a[i];
    i += step_a;
    j += step_b;
  }
  return static_cast<double>(common) / static_cast<double>(a.size() + b.size() - common);
}

ShingleSets::ShingleSets(const Records& records, int64_t buckets) {
  for (uint32_t part = 0; part < records.parts(); ++part) {
    files_.push_back(records.open(part));
    uint64_t first = records.first_of(part);
    for (const RecordFile::Block& block : files_.back().blocks()) {
      BlockCursor cursor = files_.back().cursor(block);
      cursor.column<uint32_t>(block.documents);
      for (int64_t i = 0; i <= buckets; ++i) cursor.column<uint64_t>(block.documents);
      const auto ends = cursor.column<uint64_t>(block.documents);
      if (!std::is_sorted(ends.begin(), ends.end())) cursor.fail("the sets of a block are not in order");
      if (block.documents > 0) {
        blocks_.push_back({first, ends, cursor.column<uint64_t>(ends.back())});
      }
      first += block.documents;
    }
  }
}

std::span<const uint64_t> ShingleSets::of(uint64_t document) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), document,
                                      [](uint64_t d, const Block& block) { return d < block.first; });
  const Block& block = *(after - 1);
  const size_t row = document - block.first;
  const uint64_t begin = row == 0 ? 0 : block.ends[row - 1];
  return block.hashes.subspan(begin, block.ends[row] - begin);
}

}  // namespace strata::data::dedup
