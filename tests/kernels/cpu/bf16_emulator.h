// Carries out VDPBF16PS and VCVTNE2PS2BF16 for a processor that has AVX-512 and not these instructions: what
// the compiler made of a kernel then runs in the tests as it stands, registers, addresses and all.
#pragma once

namespace strata::cpu::testing {

// While it lives, the instructions work on the calling thread's process: by the processor, or trapped and
// computed in software as the processor's manual says, which takes a microsecond or two. Other illegal
// instructions end the process as ever. One at a time.
class EmulatedBf16Pairs {
 public:
  EmulatedBf16Pairs();
  ~EmulatedBf16Pairs();
  EmulatedBf16Pairs(const EmulatedBf16Pairs&) = delete;
  EmulatedBf16Pairs& operator=(const EmulatedBf16Pairs&) = delete;

  // Whether the instructions can be run at all: not without AVX-512.
  static bool is_possible();
};

}  // namespace strata::cpu::testing
