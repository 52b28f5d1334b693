// The functions of a gate that multiplies another value, which ops name and every device's kernels compute.
#pragma once

#include <cstdint>

namespace strata {

enum class GateKind : uint8_t {
  kIdentity,  // x
  kSigmoid,   // 1 / (1 + e^-x)
  kSilu,      // x / (1 + e^-x)
};

}  // namespace strata
