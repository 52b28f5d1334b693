// Recorded results: read as they were written; a device is compared with them, and what differs is named.
#include "self_test/expected.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/version.h"
#include "device/cpu/device.h"
#include "fixtures/scratch_folder.h"
#include "self_test/cases.h"
#include "self_test/parts.h"

namespace strata::self_test {
namespace {

// Of the cases whose names begin so, on the processor.
Expected recorded(const std::string& begin, const std::shared_ptr<device::Device>& device) {
  Expected out{.program = std::string(program_version()),
               .multiprocessors = 4,
               .architecture = 90,
               .cases = {},
               .curves = {{"llama3-5m f32", {6.25, 6.125}}}};
  for (const device::OpCase& one : cases_of_ops()) {
    if (!one.name.starts_with(begin)) continue;
    const auto outputs = run_as(device, one, out.multiprocessors);
    ExpectedCase& to = out.cases[one.name];
    to.kernels = {"a_kernel", "another"};
    for (const ops::Tensor& tensor : *outputs) to.outputs.push_back(bytes_of(tensor));
  }
  return out;
}

class SelfTestRecord : public testing::Test {
 protected:
  Path file() const { return folder_.path() / "expected"; }
  void write(const Expected& expected) const {
    write_file_atomically(posix_file_system(), file(), to_bytes(expected));
  }
  Part compared(const Expected& expected, double seconds = 1e9) {
    write(expected);
    Options options;
    options.expected = file();
    Part part{.name = "kernels", .state = State::kPassed, .summary = {}, .failures = {}};
    test_kernels(device_, options, TimeLimit(monotonic_seconds() + seconds), part);
    return part;
  }

  ScratchFolder folder_;
  std::shared_ptr<device::Device> device_ = device::make_cpu_device(1);
};

TEST_F(SelfTestRecord, IsReadAsItWasWritten) {
  Expected one = recorded("scale", device_);
  one.cases.begin()->second.approximate = one.cases.begin()->second.mma = true;
  write(one);
  const Expected read = read_expected(file());
  EXPECT_EQ(read.program, one.program);
  EXPECT_EQ(read.multiprocessors, 4);
  EXPECT_EQ(read.architecture, 90);
  EXPECT_EQ(read.curves, one.curves);
  ASSERT_EQ(read.cases.size(), one.cases.size());
  for (const auto& [name, expected] : one.cases) {
    const ExpectedCase& found = read.cases.at(name);
    EXPECT_EQ(found.kernels, expected.kernels);
    EXPECT_EQ(found.approximate, expected.approximate);
    EXPECT_EQ(found.mma, expected.mma);
    EXPECT_EQ(found.outputs, expected.outputs);
  }
}

TEST_F(SelfTestRecord, RejectsFilesThatAreNone) {
  const auto error = [&]() -> std::string {
    try {
      read_expected(file());
    } catch (const DataError& found) {
      return found.what();
    }
    return "no error";
  };
  const std::string whole = to_bytes(recorded("scale", device_));
  write_file_atomically(posix_file_system(), file(), "a text");
  EXPECT_NE(error().find("no results of a GPU's kernels"), std::string::npos) << error();
  write_file_atomically(posix_file_system(), file(), whole.substr(0, whole.size() / 2));
  EXPECT_NE(error().find("damaged"), std::string::npos) << error();
  Expected other = recorded("scale", device_);
  other.program = "0.0.1";
  write(other);
  Options options;
  options.expected = file();
  EXPECT_THROW(test_device(device_, options), DataError);
}

// Moves the last fp32 element of the first output by `units` units in its last place.
void move(ExpectedCase& one, int units) {
  std::vector<uint8_t>& bytes = one.outputs.front();
  float value = 0;
  std::memcpy(&value, bytes.data() + bytes.size() - sizeof value, sizeof value);
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) + static_cast<uint32_t>(units));
  std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
}
// The case in fp32 whose last element is typical or larger.
ExpectedCase& case_to_move(Expected& expected) {
  for (auto& [name, one] : expected.cases) {
    const size_t bytes = one.outputs.front().size();
    if (name.ends_with("in_bf16") || bytes < 8) continue;
    std::vector<float> values(bytes / sizeof(float));
    std::memcpy(values.data(), one.outputs.front().data(), bytes);
    double sum = 0;
    for (const float value : values) sum += value * value;
    if (std::abs(values.back()) >= std::sqrt(sum / static_cast<double>(values.size()))) return one;
  }
  throw InternalError("no case has a large last element");
}

TEST_F(SelfTestRecord, IsComparedBitByBit) {
  Expected one = recorded("scale", device_);
  const Part same = compared(one);
  EXPECT_TRUE(same.failures.empty()) << same.failures.front();
  EXPECT_EQ(same.facts["ran"], one.cases.size());
  EXPECT_EQ(same.facts["compared_bit_by_bit"], one.cases.size());
  ExpectedCase& moved = case_to_move(one);
  const size_t last = moved.outputs.front().size() / sizeof(float) - 1;
  move(moved, 1);
  const Part other = compared(one);
  ASSERT_EQ(other.failures.size(), 1U);
  const std::string& failure = other.failures.front();
  EXPECT_NE(failure.find("output 0, element " + std::to_string(last)), std::string::npos) << failure;
  EXPECT_NE(failure.find("the same bits; kernels: a_kernel, another"), std::string::npos) << failure;
}

TEST_F(SelfTestRecord, AllowsTwoUnitsOfApproximateInstructions) {
  for (const auto& [units, failures] : {std::pair<int, size_t>{2, 0}, {3, 1}}) {
    Expected one = recorded("scale", device_);
    ExpectedCase& moved = case_to_move(one);
    moved.approximate = true;
    move(moved, units);
    EXPECT_EQ(compared(one).failures.size(), failures) << units << " units";
  }
}

// The processor of these tests has no compute capability, so sums of mma are not known to be equal.
TEST_F(SelfTestRecord, AllowsTheTolerancesOfOtherSums) {
  Expected one = recorded("scale", device_);
  ExpectedCase& moved = case_to_move(one);
  moved.mma = true;
  move(moved, 30);
  const Part part = compared(one);
  EXPECT_TRUE(part.failures.empty());
  EXPECT_EQ(part.facts["compared_bit_by_bit"], one.cases.size() - 1);
  move(moved, 1 << 20);
  EXPECT_EQ(compared(one).failures.size(), 1U);
}

TEST_F(SelfTestRecord, ReportsWhatItsTimeDidNotSufficeFor) {
  const Expected one = recorded("scale", device_);
  const Part part = compared(one, -1);
  EXPECT_EQ(part.state, State::kCut);
  EXPECT_EQ(part.facts["ran"], 0);
  EXPECT_NE(part.summary.find(std::to_string(one.cases.size()) + " cases"), std::string::npos)
      << part.summary;
}

}  // namespace
}  // namespace strata::self_test
