#include "evaluate.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

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
      ".version 9.0\n.target sm_90\n.address_size 64\n{}\n"
      ".visible .entry test(.param .u64 out, .param .u64 in)\n{{\n"
      ".reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .b32 %f<32>;\n.reg .b64 %d<16>;\n.reg "
      ".b64 %x<32>;\n"
      ".reg .b64 %out;\n.reg .b64 %in;\n"
      "ld.param.u64 %out, [out];\nld.param.u64 %in, [in];\n"
      "{}\nret;\n}}\n",
      outside, body);
}

std::vector<uint64_t> evaluate(GpuDevice& device, const std::string& instruction,
                               const std::vector<unsigned>& widths, const std::vector<uint64_t>& operands) {
  constexpr size_t kBlock = 128;
  const size_t count = widths.size() - 1;
  const size_t rows = operands.size() / count;
  const size_t padded = (rows + kBlock - 1) / kBlock * kBlock;  // every lane has a row
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
      "mul.wide.u32 %x0, %r0, {};\nadd.s64 %x0, %x0, %in;\nmul.wide.u32 %x1, %r0, 8;\nadd.s64 %x1, %x1, "
      "%out;\n",
      count * 8);
  for (size_t n = 1; n <= count; ++n) {
    body += fmt::format("ld.global.u64 %x2, [%x0+{}];\n", (n - 1) * 8);
    if (widths[n] == 1)
      body += fmt::format("setp.ne.u64 %q{}, %x2, 0;\n", n);
    else if (widths[n] == 64)
      body += fmt::format("mov.b64 %q{}, %x2;\n", n);
    else
      body += fmt::format("cvt.u{}.u64 %q{}, %x2;\n", widths[n], n);
  }
  body += text + "\n";
  if (widths[0] == 1)
    body += "selp.u64 %x3, 1, 0, %q0;\n";
  else if (widths[0] == 64)
    body += "mov.b64 %x3, %q0;\n";
  else
    body += fmt::format("cvt.u64.u{} %x3, %q0;\n", widths[0]);
  body += "st.global.u64 [%x1], %x3;\n";
  const KernelId kernel = device.load(kernel_text(body), "test.ptx", "test");
  std::vector<uint64_t> in = operands;
  in.resize(padded * count);
  std::vector<uint64_t> results(padded);
  const uint64_t from = device.allocate(in.size() * 8, "in");
  const uint64_t out = device.allocate(padded * 8, "out");
  device.write(from, in.data(), in.size() * 8);
  constexpr uint64_t kUnwritten = 0xa5c3'a5c3'a5c3'a5c3;
  std::fill(results.begin(), results.end(), kUnwritten);
  device.write(out, results.data(), padded * 8);
  device.launch(kernel, {.grid = {static_cast<unsigned>(padded / kBlock)}, .block = {kBlock}}, out, from);
  device.read(out, results.data(), padded * 8);
  device.free(from);
  device.free(out);
  results.resize(rows);
  if (const auto missing = std::count(results.begin(), results.end(), kUnwritten); missing > 0)
    throw std::runtime_error(fmt::format("{}: {} of {} rows have no result", instruction, missing, rows));
  return results;
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
