#include "data/tokenizer/code_point_set.h"

#include <algorithm>

namespace strata::data {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) : ranges_(std::move(ranges)) {
  normalize();
}

void CodePointSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> out;
  for (const CodePointRange& range : ranges_) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  ranges_ = std::move(out);
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

void CodePointSet::add(uint32_t first, uint32_t last) {
  ranges_.push_back({first, last});
  normalize();
}

CodePointSet CodePointSet::inverted() const {
  CodePointSet out;
  out.ranges_ = complement(ranges_);
  return out;
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  CodePointSet out = inverted();  // De Morgan
  out.add(other.inverted());
  return out.inverted();
}

SymbolTest::SymbolTest(const CodePointSet& set) : bits_(kBits / 64) {
  for (const CodePointRange& range : set.ranges()) {
    for (uint32_t c = range.first; c <= std::min(range.last, kBits - 1); ++c)
      bits_[c >> 6] |= uint64_t{1} << (c & 63);
    if (range.last >= kBits) beyond_.push_back({std::max(range.first, kBits), range.last});
  }
}

}  // namespace strata::data
