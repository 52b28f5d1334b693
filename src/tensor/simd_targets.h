// The instruction sets that element-wise kernels are compiled for: AVX2, AVX-512, NEON and plain C++ for the
// rest. Include before <hwy/foreach_target.h>; the best one that the processor has is chosen at run time.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
