// Small PTX texts for tests of single instructions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "evaluate.h"

namespace strata::gpu_tests {

// The violation that ends the kernel; fails the test if there is none.
ViolationDetails violation_of(const std::string& body, Extent block, const std::string& outside = "",
                              unsigned grid = 1, uint64_t seed = 1);

// Runs the kernel with `out_words` 32-bit output words, initially 0, and the input words. Returns the output.
std::vector<uint32_t> run_words(const std::string& body, size_t out_words,
                                const std::vector<uint32_t>& in = {}, Extent block = {32},
                                const std::string& outside = "", unsigned grid = 1, uint64_t seed = 1);

// Evaluates one instruction (evaluate.h) and compares. Prints a note if the device does not support it.
struct Row {
  std::vector<uint64_t> operands;
  uint64_t expected;
};
void expect_rows(const std::string& instruction, const std::vector<unsigned>& widths,
                 const std::vector<Row>& rows);

// Compares the instruction with a function for every combination of the values.
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

}  // namespace strata::gpu_tests
