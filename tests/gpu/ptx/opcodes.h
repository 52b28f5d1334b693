// The implemented opcodes, by the part before the first dot.
#pragma once

#include <span>
#include <string_view>

#include "ptx/decoder.h"

namespace strata::gpu_tests {

struct Opcode {
  std::string_view name;
  void (*decode)(Decoder& decoder);
};

// One list per file: integer.cpp, floating.cpp, …
std::span<const Opcode> integer_opcodes();
std::span<const Opcode> bit_opcodes();
std::span<const Opcode> floating_opcodes();
std::span<const Opcode> special_function_opcodes();
std::span<const Opcode> conversion_opcodes();
std::span<const Opcode> selection_opcodes();
std::span<const Opcode> move_opcodes();
std::span<const Opcode> memory_opcodes();
std::span<const Opcode> atomic_opcodes();
std::span<const Opcode> warp_opcodes();
std::span<const Opcode> matrix_opcodes();
std::span<const Opcode> async_opcodes();
std::span<const Opcode> barrier_opcodes();

// Null for an unknown opcode.
const Opcode* find_opcode(std::string_view name);
// Why an opcode is not implemented; empty if it is unknown.
std::string_view refusal(std::string_view name);

}  // namespace strata::gpu_tests
