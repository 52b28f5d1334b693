// Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") for CPUs and GPUs.
// base/random.h is the interface on CPUs.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace strata {

struct PhiloxWords {
  uint32_t at[4];
};

STRATA_HOST_DEVICE inline PhiloxWords philox_words(uint64_t seed, uint32_t stream, uint64_t counter,
                                                   uint32_t counter_high) {
  PhiloxWords x{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), stream, counter_high}};
  auto k0 = static_cast<uint32_t>(seed);
  auto k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x.at[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * x.at[2];
    x = {{static_cast<uint32_t>(p1 >> 32) ^ x.at[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ x.at[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

// Uniform in [0, 1) with 24 bits.
STRATA_HOST_DEVICE inline float uniform_float(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace strata
