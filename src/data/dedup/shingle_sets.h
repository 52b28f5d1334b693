// The sets of shingle hashes that minhash records hold, and what two of them have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dedup/record_file.h"

namespace strata::data::dedup {

// |A ∩ B| / |A ∪ B| of rising sequences without repeats; 1 for two empty ones.
double jaccard(std::span<const uint64_t> a, std::span<const uint64_t> b);

// Reads sets in place from the mapped files; keeps a few numbers per block in memory.
class ShingleSets {
 public:
  ShingleSets(const Records& records, int64_t buckets);
  std::span<const uint64_t> of(uint64_t document) const;

 private:
  struct Block {
    uint64_t first;  // document
    std::span<const uint64_t> ends;
    std::span<const uint64_t> hashes;
  };
  std::vector<RecordFile> files_;
  std::vector<Block> blocks_;
};

}  // namespace strata::data::dedup
