#include "quantize/hadamard.h"

namespace strata::quantize {

HadamardSigns hadamard_signs(RandomKey key, uint32_t step) {
  return {static_cast<uint16_t>(philox(key, 0, step)[0])};
}

void hadamard_16(float* x, int64_t pitch, HadamardSigns signs) {
  for (int64_t i = 0; i < kHadamard; ++i) {
    if ((signs.bits >> i & 1) != 0) x[i * pitch] = -x[i * pitch];
  }
  for (int64_t apart = kHadamard / 2; apart > 0; apart /= 2) {
    for (int64_t i = 0; i < kHadamard; ++i) {
      if ((i & apart) != 0) continue;
      float& a = x[i * pitch];
      float& b = x[(i + apart) * pitch];
      const float sum = a + b, difference = a - b;
      a = sum;
      b = difference;
    }
  }
  for (int64_t i = 0; i < kHadamard; ++i) x[i * pitch] *= 0.25f;
}

}  // namespace strata::quantize
