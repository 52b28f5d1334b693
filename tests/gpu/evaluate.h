// Evaluates single instructions on a device, for many rows of operands at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu_device.h"

namespace strata::gpu_tests {

// A module with one kernel "test" with the parameters "out" and "in" (both .u64), whose addresses are in %out
// and %in. Registers: %p0…15 predicates, %h 16 bits, %r 32 bits, %f 32 bits, %d 64 bits, %x 64 bits.
// `outside` precedes the kernel.
std::string kernel_text(const std::string& body, const std::string& outside = "");

// In the text `%D` is the result, `%A`, `%B`, `%C`, `%E` are the operands; `widths` has the bits of the
// result and of each operand (1: predicate, 16, 32, 64). `operands` has consecutive rows. A warp evaluates 32
// consecutive rows; %x1 is the address of the row's result, 8 bytes. Returns one result per row.
std::vector<uint64_t> evaluate(GpuDevice& device, const std::string& instruction,
                               const std::vector<unsigned>& widths, const std::vector<uint64_t>& operands);

uint64_t bits(float value);
uint64_t bits(double value);
float as_float(uint64_t value);
double as_double(uint64_t value);

// Edge values of each type.
std::vector<uint64_t> integers(unsigned width);
std::vector<uint64_t> floats();
std::vector<uint64_t> doubles();

}  // namespace strata::gpu_tests
