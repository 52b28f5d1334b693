// Arithmetic as IEEE 754 has it in a thread that flushes subnormal numbers (base/parallel.h: every compute thread).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace strata::quantize {

// While it lives, the calling thread keeps subnormal numbers; then its previous mode is restored.
class KeepSubnormals {
 public:
  KeepSubnormals() {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    _mm_setcsr(static_cast<unsigned>(before_) & ~0x8040u);  // FTZ and DAZ
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ & ~(uint64_t{1} << 24)));
#endif
  }
  ~KeepSubnormals() {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(before_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(before_));
#endif
  }
  KeepSubnormals(const KeepSubnormals&) = delete;
  KeepSubnormals& operator=(const KeepSubnormals&) = delete;

 private:
  uint64_t before_ = 0;
};

}  // namespace strata::quantize
