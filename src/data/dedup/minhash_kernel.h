// The inner loop of MinHash: minima of many permutations over many shingle hashes, with the processor's
// vectors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::data::dedup {

inline constexpr uint64_t kMersenne61 = (uint64_t{1} << 61) - 1;

// datatrove's value of a hash under one permutation: hash * a wraps at 2^64 before the modulus.
inline uint64_t permuted(uint64_t hash, uint64_t a, uint64_t b) {
  return (hash * a + b) % kMersenne61;
}

// The permutations as the loop reads them, filled up to a multiple of kGroup with copies of the last one.
struct PermutationTable {
  static constexpr size_t kGroup = 16;   // a whole number of vectors on every machine
  static constexpr size_t kTile = 2048;  // hashes that stay in the first cache through all permutations
  std::vector<uint64_t> a, b;            // b one more than the permutation's
  std::vector<uint32_t> a_low, a_high, b_high;  // halves of a and of the permutation's own b

  PermutationTable() = default;
  PermutationTable(std::span<const uint64_t> a_of, std::span<const uint64_t> b_of);
  size_t size() const { return size_; }
  uint64_t value(uint64_t hash, size_t i) const { return permuted(hash, a[i], b[i] - 1); }

 private:
  size_t size_ = 0;
};

// out[i] = the least of permuted(hash, a[i], b[i]) over all hashes (at least one), of its low 32 bits if
// `narrow`. `out` has capacity for table.a.size(); entries past size() are unused.
void least_permuted(const PermutationTable& table, std::span<const uint64_t> hashes, bool narrow,
                    uint64_t* out);

}  // namespace strata::data::dedup
