// The self-test on the GPU device, whose driver is the twin: kernels are compared with results of the executor, and
// one that is wrong is named with its first element.
#include <gtest/gtest.h>

#include <bit>

#include "base/version.h"
#include "device/open/open.h"
#include "fixtures/scratch_folder.h"
#include "self_test/cases.h"
#include "self_test/expected.h"
#include "self_test/parts.h"
#include "twin/twin.h"

namespace strata::self_test {
namespace {

constexpr int kMultiprocessors = 132;

Expected recorded(const DevicePtr& device) {
  Expected out{.program = std::string(program_version()),
               .multiprocessors = kMultiprocessors,
               .architecture = 90,
               .cases = {},
               .curves = {}};
  for (const device::OpCase& one : cases_of_ops()) {
    if (!one.name.starts_with("scale") && !one.name.starts_with("linear_forward")) continue;
    const auto outputs = run_as(device, one, kMultiprocessors);
    if (!outputs) continue;
    ExpectedCase& to = out.cases[one.name];
    to.kernels = {"of " + one.name};
    for (const ops::Tensor& tensor : *outputs) to.outputs.push_back(bytes_of(tensor));
  }
  return out;
}

Part compared(const gpu_tests::Twin& twin, const Path& file, const std::string& settings) {
  twin.restart(settings);
  const DevicePtr device = device::open(device::Kind::kCuda);
  Options options;
  options.expected = file;
  Part part{.name = "kernels", .state = State::kPassed, .summary = {}, .failures = {}};
  test_kernels(device, options, TimeLimit(monotonic_seconds() + 1e9), part);
  return part;
}

TEST(GpuSelfTest, NamesAKernelThatDiffersFromTheExecutor) {
  const ScratchFolder folder;
  const Path file = folder / "expected.zst";
  const gpu_tests::Twin twin;
  size_t cases = 0;
  {
    twin.restart("multiprocessors=132");
    const Expected expected = recorded(device::open(device::Kind::kCuda));
    cases = expected.cases.size();
    put_file(file, to_bytes(expected));
  }
  ASSERT_GT(cases, 3U);
  // Another order of blocks, another card: the same bits.
  const Part same = compared(twin, file, "seed=7;multiprocessors=3");
  EXPECT_TRUE(same.failures.empty()) << same.failures.front();
  EXPECT_EQ(same.facts["ran"], cases);
  EXPECT_EQ(same.facts["compared_bit_by_bit"], cases);
  // One factor of one kernel is another one.
  const Part other = compared(twin, file, "edit=scale_f32:mul\\.f32:1:add.f32");
  ASSERT_FALSE(other.failures.empty());
  for (const std::string& failure : other.failures) {
    EXPECT_TRUE(failure.starts_with("scale")) << failure;
    EXPECT_NE(failure.find("element "), std::string::npos) << failure;
    EXPECT_NE(failure.find("kernels: of scale"), std::string::npos) << failure;
  }
  twin.restart();
}

}  // namespace
}  // namespace strata::self_test
