// Splits sizes into blocks. Internal to kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/arena.h"

namespace strata::cpu::detail {

constexpr int64_t divide_up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// Splits n into nearly equal parts of at most `most`, each a multiple of `unit`; returns their size.
inline int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = divide_up(std::max<int64_t>(n, 1), std::max(most, unit));
  return align_up(divide_up(std::max<int64_t>(n, 1), parts), unit);
}

}  // namespace strata::cpu::detail
