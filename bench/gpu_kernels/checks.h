// Random values that are equal on host and device, so the host can check results without reading operands.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define STRATA_BOTH __host__ __device__
#else
#define STRATA_BOTH
#endif

namespace strata::gpu_bench {

STRATA_BOTH inline uint32_t random_bits(uint64_t i, uint64_t seed) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ x >> 31) >> 32);
}
// Uniform in [-1, 1).
STRATA_BOTH inline float random_value(uint64_t i, uint64_t seed) {
  return static_cast<float>(random_bits(i, seed) >> 8) * (1.0f / 8388608.0f) - 1.0f;
}
STRATA_BOTH inline int32_t random_id(uint64_t i, uint64_t seed, uint32_t limit) {
  return static_cast<int32_t>(random_bits(i, seed) % limit);
}

struct FillArgs {
  void* to;
  int64_t n;
  uint64_t seed;
  float scale;
};
struct DigestArgs {
  const void* from;
  uint64_t* out;
  int64_t n;
};

}  // namespace strata::gpu_bench
