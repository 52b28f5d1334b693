// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): a pure function of key and counter, so
// that no thread count, layout or restart changes them.
#pragma once

#include <array>
#include <cstdint>

#include "base/philox.h"

namespace strata {

struct RandomKey {
  uint64_t seed = 0;
  uint32_t stream = 0;  // which use: a parameter's name hashed, an op's id, sampling, …
};

// 128 random bits for one counter.
std::array<uint32_t, 4> philox(RandomKey key, uint64_t counter, uint32_t counter_high = 0);

// Fills out[0..n) with N(0, std²); element i depends only on (key, first + i). Box-Muller on pairs.
void fill_normal(float* out, int64_t n, float std, RandomKey key, int64_t first = 0);
// Like fill_normal(), but truncated at ±kNormalCut · std: values outside are drawn again. `std` is that of
// the normal before truncation, as in torch.nn.init.trunc_normal_.
inline constexpr float kNormalCut = 3;
void fill_truncated_normal(float* out, int64_t n, float std, RandomKey key, int64_t first = 0);

// A seeded bijection of [0, n), for any n ≥ 1, in constant memory: a 4-round-per-half Feistel network over
// the next even power of two, with cycle walking.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  int half_bits_;
  RandomKey key_;
  uint64_t epoch_;
};

}  // namespace strata
