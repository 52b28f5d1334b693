#include "snippet.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

namespace strata::gpu_tests {
namespace {

const char* register_type(unsigned width) {
  switch (width) {
    case 1:
      return "pred";
    case 16:
      return "b16";
    case 32:
      return "b32";
    default:
      return "b64";
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::string kernel_text(const std::string& body, const std::string& outside) {
  return fmt::format(
      ".version 9.0\n.target sm_80\n.address_size 64\n{}\n"
      ".visible .entry test(.param .u64 out, .param .u64 in)\n{{\n"
      ".reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .b32 %f<32>;\n.reg .b64 %d<16>;\n.reg "
      ".b64 %x<32>;\n"
      ".reg .b64 %out;\n.reg .b64 %in;\n"
      "ld.param.u64 %out, [out];\nld.param.u64 %in, [in];\n"
      "{}\nret;\n}}\n",
      outside, body);
}

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
  Device device({.seed = seed});
  const Module& module = device.load(kernel_text(body, outside), "test.ptx");
  std::vector<uint32_t> words(out_words);
  const uint64_t out = device.allocate(words.size() * 4, "out");
  device.write(out, words.data(), words.size() * 4);
  const uint64_t from = device.allocate(in.size() * 4, "in");
  device.write(from, in.data(), in.size() * 4);
  device.launch(module.kernel("test"), {.grid = {grid}, .block = block}, out, from);
  device.synchronize();
  device.read(out, words.data(), words.size() * 4);
  return words;
}

std::vector<uint64_t> evaluate(const std::string& instruction, const std::vector<unsigned>& widths,
                               const std::vector<std::vector<uint64_t>>& rows) {
  const size_t count = widths.size() - 1;
  const size_t stride = count * 8;
  std::string body;
  const char* const names[] = {"%D", "%A", "%B", "%C", "%E"};
  std::string text = instruction;
  for (size_t n = 0; n < widths.size(); ++n) {
    const std::string name = fmt::format("%q{}", n);
    body += fmt::format(".reg .{} {};\n", register_type(widths[n]), name);
    text = replaced(text, names[n], name);
  }
  body += fmt::format(
      "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.s32 %r0, %r1, %r2, %r0;\n"
      "setp.ge.u32 %p0, %r0, {};\n@%p0 ret;\nmul.wide.u32 %x0, %r0, {};\nadd.s64 %x0, %x0, %in;\n"
      "mul.wide.u32 %x1, %r0, 8;\nadd.s64 %x1, %x1, %out;\n",
      rows.size(), stride);
  for (size_t n = 1; n <= count; ++n) {
    body += fmt::format("ld.global.u64 %x2, [%x0+{}];\n", (n - 1) * 8);
    if (widths[n] == 1)
      body += fmt::format("setp.ne.u64 %q{}, %x2, 0;\n", n);
    else
      body += fmt::format("cvt.u{}.u64 %q{}, %x2;\n", widths[n], n);
  }
  body += text + "\n";
  if (widths[0] == 1)
    body += "selp.u64 %x3, 1, 0, %q0;\n";
  else
    body += fmt::format("cvt.u64.u{} %x3, %q0;\n", widths[0]);
  body += "st.global.u64 [%x1], %x3;\n";
  std::vector<uint64_t> in;
  for (const auto& row : rows) in.insert(in.end(), row.begin(), row.end());
  std::vector<uint64_t> results(rows.size());
  Device device;
  const Module& module = device.load(kernel_text(body), "test.ptx");
  const uint64_t from = device.allocate(in.size() * 8, "in");
  const uint64_t out = device.allocate(results.size() * 8, "out");
  if (!in.empty()) device.write(from, in.data(), in.size() * 8);
  const auto blocks = static_cast<unsigned>((rows.size() + 127) / 128);
  device.launch(module.kernel("test"), {.grid = {blocks}, .block = {128}}, out, from);
  device.synchronize();
  device.read(out, results.data(), results.size() * 8);
  return results;
}

void expect_rows(const std::string& instruction, const std::vector<unsigned>& widths,
                 const std::vector<Row>& rows) {
  std::vector<std::vector<uint64_t>> operands;
  for (const Row& row : rows) operands.push_back(row.operands);
  std::vector<uint64_t> results;
  try {
    results = evaluate(instruction, widths, operands);
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

uint64_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits(double value) {
  return std::bit_cast<uint64_t>(value);
}
float as_float(uint64_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value));
}
double as_double(uint64_t value) {
  return std::bit_cast<double>(value);
}

std::vector<uint64_t> integers(unsigned width) {
  const uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const uint64_t top = uint64_t{1} << (width - 1);
  return {0,       1,   2,       3,       5,   7,       31,         32, 33, 100, 0x55aa % (all / 2),
          top - 1, top, top + 1, all - 1, all, all / 3, all / 5 * 2};
}

std::vector<uint64_t> floats() {
  std::vector<uint64_t> values;
  for (const float value :
       {0.0f, 1.0f, 1.5f, 3.14159274f, 0.1f, 16777216.0f, 16777217.0f, 3.4028235e38f, 1.17549435e-38f, 1e-40f,
        1.4e-45f, 65504.0f, 1e-8f, 2.5f, 0.333333343f, std::numeric_limits<float>::infinity()}) {
    values.push_back(bits(value));
    values.push_back(bits(-value));
  }
  values.push_back(0x7fc0'0000);
  values.push_back(0xffc1'2345);
  return values;
}

std::vector<uint64_t> doubles() {
  std::vector<uint64_t> values;
  for (const double value : {0.0, 1.0, 1.5, 3.141592653589793, 0.1, 9007199254740993.0,
                             1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1e-310, 2.5, 1.0 / 3,
                             1e20, std::numeric_limits<double>::infinity()}) {
    values.push_back(bits(value));
    values.push_back(bits(-value));
  }
  return values;
}

}  // namespace strata::gpu_tests
