// Optimizer steps on weights and moments that memory holds in fewer bits than fp32. A few elements at a time are
// widened, updated in fp32 (optimizer.h) and rounded back, while they are in the cache.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "kernels/cpu/optimizer.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Elements that one scale of a moment in e4m3 is for.
inline constexpr int64_t kScaledMoments = 256;

// A range of elements with consecutive places in the whole tensor; `place` -1: padding.
struct PlacedElements {
  int64_t at = 0, count = 0, place = -1;
};
// The range that begins at element `at` of the arrays and ends before `end`.
using PlaceOf = FunctionRef<PlacedElements(int64_t at, int64_t end)>;

struct StoredWeights {
  void* data = nullptr;
  DType dtype = DType::kF32;     // or kBF16
  BF16* compensation = nullptr;  // the weight is data + compensation; nullptr: data
  // Rounds bf16 stochastically: the number of an element's place in the whole tensor decides, the upper half of
  // random_word() (quantize/formats.h). Otherwise to nearest.
  bool stochastic = false;
  RandomKey key = {};
  uint32_t step = 0;
};
struct StoredMoments {
  void* data = nullptr;       // nullptr: the optimizer has none
  DType dtype = DType::kF32;  // kBF16, or kE4M3 with one scale for each kScaledMoments elements
  float* scales = nullptr;
};

// `update(at, arrays, n)` updates elements [at, at + n), which `arrays` has in fp32; `place_of` is called for
// stochastic weights only.
void stored_update(int64_t n, const StoredWeights& weights, const StoredMoments& m, const StoredMoments& v,
                   const float* grad, FunctionRef<void(int64_t at, const AdamWArrays&, int64_t n)> update,
                   PlaceOf place_of);

// to[i] = x[i], rounded by the random word of element first + i: up in magnitude with the probability of the
// part that is cut off, to within 2^-16. NaN and infinity stay.
void round_stochastic(const float* x, BF16* to, int64_t n, RandomKey key, uint32_t step, int64_t first);

}  // namespace strata::cpu
