// Emulates VDPBF16PS and VCVTNE2PS2BF16 on processors that have AVX-512 without these instructions, so that
// tests execute the compiled kernels themselves, with their registers and addresses.
#pragma once

namespace strata::cpu::testing {

// As long as the object lives, the process can execute the instructions: on the processor, or trapped and
// computed in software as the processor's manual defines them (one or two microseconds each). Other illegal
// instructions end the process as usual. At most one object at a time.
class EmulatedBf16Pairs {
 public:
  EmulatedBf16Pairs();
  ~EmulatedBf16Pairs();
  EmulatedBf16Pairs(const EmulatedBf16Pairs&) = delete;
  EmulatedBf16Pairs& operator=(const EmulatedBf16Pairs&) = delete;

  // Whether the instructions can be executed at all: requires AVX-512.
  static bool is_possible();
};

}  // namespace strata::cpu::testing
