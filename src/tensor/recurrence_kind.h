// The linear recurrences over a sequence that ops name and every device's kernels compute.
#pragma once

#include <cstdint>

namespace strata {

enum class RecurrenceKind : uint8_t {
  kDelta,       // S ← e^g S + β k (v − (e^g S)ᵀ k)ᵀ: gated delta nets, Kimi delta attention
  kStateSpace,  // S ← e^g S + β k vᵀ: Mamba-2
};

}  // namespace strata
