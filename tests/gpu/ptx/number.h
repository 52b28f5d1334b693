// PTX literals.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ptx/syntax.h"

namespace strata::gpu_tests {

// kInteger, kFloat32 or kFloat64, with its bits.
struct Number {
  Operand::Kind kind;
  int64_t value;
};

std::optional<Number> parse_number(std::string_view text, bool negative);

}  // namespace strata::gpu_tests
