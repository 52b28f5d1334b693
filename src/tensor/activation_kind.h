// The activation functions of feed-forward blocks, which ops name and every device's kernels compute.
#pragma once

#include <cstdint>

namespace strata {

enum class ActivationKind : uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGeluTanh,  // 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
  kGeluErf,   // x Φ(x), Φ the normal distribution
  kRelu,      // max(x, 0)
  kRelu2,     // max(x, 0)² (So et al. 2021, arXiv 2109.08668)
};

}  // namespace strata
