#include "quantize/hadamard.h"

namespace strata::quantize {

HadamardSigns hadamard_signs(RandomKey key, uint32_t step) {
  return {static_cast<uint16_t>(philox(key, 0, step)[0])};
}

void hadamard_16(float* x, int64_t pitch, HadamardSigns signs) {
  hadamard_16_columns(x, pitch, 1, signs);
}

void hadamard_16_columns(float* x, int64_t pitch, int64_t lanes, HadamardSigns signs) {
  for (int64_t i = 0; i < kHadamard; ++i) {
    if ((signs.bits >> i & 1) == 0) continue;
    for (int64_t lane = 0; lane < lanes; ++lane) x[i * pitch + lane] = -x[i * pitch + lane];
  }
  for (int64_t apart = kHadamard / 2; apart > 0; apart /= 2) {
    const float share = apart == 1 ? 0.25f : 1.0f;
    for (int64_t i = 0; i < kHadamard; ++i) {
      if ((i & apart) != 0) continue;
      float* const a = x + i * pitch;
      float* const b = a + apart * pitch;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const float sum = a[lane] + b[lane], difference = a[lane] - b[lane];
        a[lane] = sum * share;
        b[lane] = difference * share;
      }
    }
  }
}

}  // namespace strata::quantize
