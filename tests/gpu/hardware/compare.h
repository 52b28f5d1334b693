// Compares single instructions on the executor and a GPU, over edge values and random operands.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "evaluate.h"

namespace strata::gpu_tests {

// `signature` has a letter for the result and, after '=', one per operand:
//  p predicate                 s, w, l integers of 16, 32, 64 bits
//  f, d, h, b f32, f64, f16, bf16    H, B f16x2, bf16x2
// and for operands only
//  a shift amounts and positions     g groups 0 … 3     c shuffle bounds
//  o f32 within [-pi, pi]            O f32 within [-100000, 100000]
struct Case {
  std::string part;
  std::string instruction;
  std::string signature;
  size_t rows;
  std::string note{};
};

// Instruction groups: "integer", "float", "approximate", "convert", "compare", "warp", "memory".
std::vector<std::string> case_parts();
std::vector<Case> cases_of(const std::string& part);
std::vector<Case> arithmetic_cases();  // integer, float and approximate
std::vector<Case> other_cases();

std::vector<unsigned> widths_of(const Case& one);
std::vector<uint64_t> operands_of(const Case& one);

struct Difference {
  bool found = false;
  std::vector<uint64_t> operands;
  uint64_t executor = 0, card = 0;
};

struct Outcome {
  uint64_t rows = 0, equal = 0;
  uint64_t nan_bits = 0;  // both NaN, with different bits
  uint64_t kinds = 0;     // NaN or infinity on one side, a number on the other
  uint64_t open = 0;      // other differences in results that PTX leaves undefined: integer division by zero
  // Floats that differ by 1, 2, 3 … 4, 5 … 16 and more units in the last place.
  std::array<uint64_t, 5> by_ulp{};
  uint64_t largest_ulp = 0;
  double largest_error = 0;  // absolute, f32 only
  Difference worst;
  std::vector<Difference> examples;  // the 1st, 4th, 16th, … difference; then those with other NaN bits
  std::string error;
};

Outcome compare(const Case& one, const std::vector<uint64_t>& operands, const std::vector<uint64_t>& executor,
                const std::vector<uint64_t>& card);

// The distance of two results in units in the last place, for the letter of a signature; integers: 0 or 1.
// kNotNumbers if only one is NaN or infinite.
inline constexpr uint64_t kNotNumbers = ~uint64_t{0};
uint64_t ulp_distance(char letter, uint64_t a, uint64_t b);

}  // namespace strata::gpu_tests
