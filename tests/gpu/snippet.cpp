#include "snippet.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace strata::gpu_tests {

ViolationDetails violation_of(const std::string& body, Extent block, const std::string& outside,
                              unsigned grid, uint64_t seed) {
  Device device({.seed = seed, .checks = {}, .instruction_limit = 100'000});
  const Module& module = device.load(kernel_text(body, outside), "test.ptx");
  const uint64_t out = device.allocate(4096, "out");
  const uint64_t in = device.allocate(4096, "in");
  const std::vector<uint32_t> zeros(1024);
  device.write(in, zeros.data(), 4096);
  try {
    device.launch(module.kernel("test"), {.grid = {grid}, .block = block}, out, in);
    device.synchronize();
  } catch (const Violation& violation) {
    EXPECT_NE(std::string(violation.what()).find("test.ptx:"), std::string::npos) << violation.what();
    ::testing::Test::RecordProperty("violation", violation.what());
    return violation.details();
  }
  ADD_FAILURE() << "no violation in:\n" << body;
  return {};
}

std::vector<uint32_t> run_words(const std::string& body, size_t out_words, const std::vector<uint32_t>& in,
                                Extent block, const std::string& outside, unsigned grid, uint64_t seed) {
  const std::unique_ptr<GpuDevice> device = make_device({.seed = seed});
  const KernelId kernel = device->load(kernel_text(body, outside), "test.ptx", "test");
  std::vector<uint32_t> words(out_words);
  const uint64_t out = device->allocate(words.size() * 4, "out");
  device->write(out, words.data(), words.size() * 4);
  const uint64_t from = device->allocate(in.size() * 4, "in");
  device->write(from, in.data(), in.size() * 4);
  device->launch(kernel, {.grid = {grid}, .block = block}, out, from);
  device->read(out, words.data(), words.size() * 4);
  return words;
}

void expect_rows(const std::string& instruction, const std::vector<unsigned>& widths,
                 const std::vector<Row>& rows) {
  std::vector<uint64_t> operands;
  for (const Row& row : rows) operands.insert(operands.end(), row.operands.begin(), row.operands.end());
  std::vector<uint64_t> results;
  try {
    results = evaluate(*make_device(), instruction, widths, operands);
  } catch (const Unsupported& error) {
    fmt::print("not supported by this device: {}: {}\n", instruction, error.what());
    return;
  } catch (const std::exception& error) {
    FAIL() << instruction << ": " << error.what();
  }
  size_t wrong = 0;
  for (size_t n = 0; n < rows.size(); ++n) {
    if (results[n] == rows[n].expected) continue;
    std::string text;
    for (const uint64_t operand : rows[n].operands) text += fmt::format(" {:#x}", operand);
    EXPECT_EQ(results[n], rows[n].expected)
        << fmt::format("{} of{}: {:#x}, not {:#x}", instruction, text, results[n], rows[n].expected);
    if (++wrong == 3) return;
  }
}

}  // namespace strata::gpu_tests
