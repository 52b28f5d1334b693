// A set of symbols (code points, and bytes that are not UTF-8) with the operations of character classes.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/unicode.h"

namespace strata::data {

class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(std::vector<CodePointRange> ranges);  // in any order

  void add(const CodePointSet& other);
  void add(uint32_t first, uint32_t last);
  CodePointSet inverted() const;
  CodePointSet intersected(const CodePointSet& other) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  void normalize();
  std::vector<CodePointRange> ranges_;  // sorted, apart
};

// A set as it is asked while matching: one bit a symbol of the basic plane, ranges beyond.
class SymbolTest {
 public:
  explicit SymbolTest(const CodePointSet& set);
  bool operator()(uint32_t c) const {
    if (c < kBits) return bits_[c >> 6] >> (c & 63) & 1;
    return in_ranges(beyond_, c);
  }

 private:
  static constexpr uint32_t kBits = 0x10000;
  std::vector<uint64_t> bits_;
  std::vector<CodePointRange> beyond_;
};

}  // namespace strata::data
