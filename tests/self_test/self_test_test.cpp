// The self-test of a device passes for right kernels, names the op of one that is wrong, and reports what its time did not
// suffice for.
#include "self_test/parts.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "device/bind.h"
#include "device/cpu/device.h"
#include "ops/elementwise/elementwise.h"

namespace strata::device {
namespace {

// Scales by a factor that is off by a thousandth.
struct Wrong {};

}  // namespace

template <typename Op>
BoundKernel bind(Wrong, const Bind<Op>& node);
template <>
BoundKernel bind<ops::Scale>(Wrong, const Bind<ops::Scale>& node) {
  return node.kernel([n = node.in.x->shape.elements(), dtype = node.in.x->dtype,
                      factor = 1.001 * node.attrs.factor](const Operands<ops::Scale>& at) {
    for (int64_t i = 0; i < n; ++i) {
      if (dtype == DType::kBF16) {
        const auto x = static_cast<float>(reinterpret_cast<const BF16*>(at.in.x)[i]);
        reinterpret_cast<BF16*>(at.out.y)[i] = BF16(static_cast<float>(factor * x));
      } else {
        reinterpret_cast<float*>(at.out.y)[i] =
            static_cast<float>(factor * reinterpret_cast<const float*>(at.in.x)[i]);
      }
    }
  });
}

}  // namespace strata::device

namespace strata::self_test {
namespace {

// Measures its peaks only: rates of all ops take half a minute.
class QuickDevice final : public device::CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  hardware::DeviceSpec measured(FileSystem&, bool) const override { return measure_peaks(0.1); }
};
std::shared_ptr<device::Device> quick_device() {
  return std::make_shared<QuickDevice>(device::cpu_target(1));
}

Options options() {
  Options out;
  out.minutes = 1e6;
  out.program = STRATA_PROGRAM;
  out.models = {"llama3-5m"};
  out.step_tokens = 64;
  return out;
}

const Part& part_of(const Result& result, const std::string& name) {
  for (const Part& part : result.parts)
    if (part.name == name) return part;
  throw InternalError("no part {}", name);
}

TEST(SelfTest, PassesForTheProcessor) {
  int reported = 0;
  std::vector<std::string> finished;
  Options of = options();
  of.progress = [&](const std::string&) { ++reported; };
  of.finished = [&](const Part& part) { finished.push_back(part.name); };
  const Result result = test_device(quick_device(), of);
  for (const Part& part : result.parts)
    EXPECT_EQ(part.state, part.name == "kernels" ? State::kNotRun : State::kPassed)
        << part.name << ": " << (part.failures.empty() ? part.summary : part.failures.front());
  EXPECT_TRUE(result.passed());
  EXPECT_FALSE(result.failed());
  EXPECT_EQ(finished,
            (std::vector<std::string>{"machine", "kernels", "ops", "curves", "resume", "steps", "rates"}));
  EXPECT_GT(reported, 0);
  const auto ops = part_of(result, "ops").facts;
  EXPECT_EQ(ops["ran"], ops["cases"]);
  EXPECT_GT(ops["ran"], 1000);
  EXPECT_TRUE(ops["without_kernel"].empty());
  for (const auto& [model, facts] : part_of(result, "curves").facts.items())
    EXPECT_EQ(facts["worst_difference"], 0) << model;
  EXPECT_EQ(part_of(result, "curves").facts.size(), 8U);
  EXPECT_EQ(part_of(result, "resume").facts["steps_before_the_kill"], 6);
  EXPECT_EQ(part_of(result, "resume").facts["steps_after_the_resume"], 12);
  const auto steps = part_of(result, "steps").facts;
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_GT(steps.front()["family_seconds"].size(), 3U);
  EXPECT_GT(part_of(result, "rates").facts["memory_bytes_per_s"], 0);
}

TEST(SelfTest, NamesAKernelThatIsWrong) {
  device::Target target = device::cpu_target(1);
  static const device::Binding own[] = {device::row<ops::Scale>(device::Wrong{})};
  static const std::vector<device::Binding> table = device::with_fallback(own, target.bindings);
  target.bindings = table;
  Options of = options();
  of.models = {};
  const Result result = test_device(std::make_shared<QuickDevice>(target), of);
  EXPECT_TRUE(result.failed());
  const Part& ops = part_of(result, "ops");
  EXPECT_EQ(ops.state, State::kFailed);
  ASSERT_FALSE(ops.failures.empty());
  for (const std::string& failure : ops.failures) EXPECT_TRUE(failure.starts_with("scale")) << failure;
}

TEST(SelfTest, ReportsWhatItsTimeDidNotSufficeFor) {
  Options of = options();
  of.minutes = 0;
  const Result none = test_device(quick_device(), of);
  EXPECT_FALSE(none.passed());
  EXPECT_FALSE(none.failed());
  for (const Part& part : none.parts) {
    EXPECT_EQ(part.state, State::kNotRun) << part.name;
    EXPECT_NE(part.summary.find("minutes were used up"), std::string::npos) << part.summary;
  }
}

// Its memory is used up: every allocation is refused.
class Exhausted final : public device::HostDevice {
 public:
  using HostDevice::HostDevice;
  std::unique_ptr<device::Memory> allocate(int64_t bytes) override {
    throw WorldError("[memory] {} bytes are not there", bytes);
  }
};

TEST(SelfTest, StopsWhereTheDeviceFails) {
  Options of = options();
  const Result result = test_device(std::make_shared<Exhausted>(device::cpu_target(1)), of);
  EXPECT_TRUE(result.failed());
  EXPECT_EQ(part_of(result, "ops").state, State::kFailed);
  EXPECT_NE(part_of(result, "ops").failures.front().find("bytes are not there"), std::string::npos);
  for (const char* later : {"curves", "resume", "steps", "rates"}) {
    EXPECT_EQ(part_of(result, later).state, State::kNotRun) << later;
    EXPECT_EQ(part_of(result, later).summary, "the device failed in part ops");
  }
}

// A card with little free memory runs the models that fit, and names the others.
class Small final : public device::CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  std::unique_ptr<device::Memory> allocate(int64_t bytes) override {
    if (bytes > 200'000'000) throw WorldError("[memory.budget] {} bytes are needed, 200 MB are free", bytes);
    return CpuDevice::allocate(bytes);
  }
};

TEST(SelfTest, NamesModelsThatDoNotFit) {
  Options of = options();
  of.models = {"llama3-29m", "llama3-5m"};
  Part part{.name = "steps", .state = State::kPassed, .summary = {}, .failures = {}};
  test_steps(std::make_shared<Small>(device::cpu_target(1)), of, TimeLimit(monotonic_seconds() + 1e9), part);
  EXPECT_EQ(part.state, State::kPassed);
  EXPECT_NE(part.summary.find("llama3-29m 1x64 bf16 does not fit, llama3-5m 1x64 bf16 "), std::string::npos)
      << part.summary;
  EXPECT_NE(part.facts["llama3-29m 1x64 bf16"]["not_run"].get<std::string>().find("200 MB are free"),
            std::string::npos);
  EXPECT_GT(part.facts["llama3-5m 1x64 bf16"]["tokens_per_s"], 0);
}

}  // namespace
}  // namespace strata::self_test
