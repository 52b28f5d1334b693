// Small PTX texts for tests of single instructions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "ptx/device.h"

namespace strata::gpu_tests {

// A module with one kernel "test" of the parameters "out" and "in" (both .u64), whose addresses are in %out
// and %in. Registers: %p0…15 predicates, %h 16 bits, %r 32 bits, %f 32 bits, %d 64 bits, %x 64 bits.
// `outside` goes before the kernel.
std::string kernel_text(const std::string& body, const std::string& outside = "");

// The violation that the kernel ends with; fails the test where it ends without one.
ViolationDetails violation_of(const std::string& body, Extent block, const std::string& outside = "",
                              unsigned grid = 1, uint64_t seed = 1);

// Runs the kernel with memory of `out_words` 32-bit words, which start at 0, and the input words. Returns the
// output.
std::vector<uint32_t> run_words(const std::string& body, size_t out_words,
                                const std::vector<uint32_t>& in = {}, Extent block = {32},
                                const std::string& outside = "", unsigned grid = 1, uint64_t seed = 1);

// Evaluates one instruction for each row of operands. In the text `%D` is the result, `%A`, `%B`, `%C`, `%E`
// the operands; `widths` has the bits of the result and of each operand (1: predicate, 16, 32, 64).
struct Row {
  std::vector<uint64_t> operands;
  uint64_t expected;
};
std::vector<uint64_t> evaluate(const std::string& instruction, const std::vector<unsigned>& widths,
                               const std::vector<std::vector<uint64_t>>& rows);
// … and compares.
void expect_rows(const std::string& instruction, const std::vector<unsigned>& widths,
                 const std::vector<Row>& rows);

// Compares the instruction with a function over every combination of the values.
template <typename F>
void expect_function(const std::string& instruction, const std::vector<unsigned>& widths,
                     const std::vector<std::vector<uint64_t>>& values, F function) {
  std::vector<Row> rows;
  std::vector<size_t> at(values.size(), 0);
  for (bool more = true; more;) {
    std::vector<uint64_t> operands;
    for (size_t n = 0; n < values.size(); ++n) operands.push_back(values[n][at[n]]);
    rows.push_back({operands, function(operands)});
    more = false;
    for (size_t n = 0; n < at.size() && !more; ++n) {
      more = ++at[n] < values[n].size();
      if (!more) at[n] = 0;
    }
  }
  expect_rows(instruction, widths, rows);
}

uint64_t bits(float value);
uint64_t bits(double value);
float as_float(uint64_t value);
double as_double(uint64_t value);

// Values at the edges of each type.
std::vector<uint64_t> integers(unsigned width);
std::vector<uint64_t> floats();
std::vector<uint64_t> doubles();

}  // namespace strata::gpu_tests
