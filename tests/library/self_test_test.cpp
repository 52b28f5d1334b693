// The self-test of a device passes for right kernels, and names the op of one that is wrong.
#include "library/self_test.h"

#include <gtest/gtest.h>

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

namespace strata::library {
namespace {

TEST(SelfTest, PassesForTheProcessor) {
  int reported = 0;
  const SelfTest result = test_device(device::make_cpu_device(1), 0, [&](const std::string&) { ++reported; });
  EXPECT_TRUE(result.passed()) << (result.failures.empty() ? "" : result.failures.front());
  EXPECT_EQ(result.refused, 0);
  EXPECT_EQ(result.runs, result.cases);
  EXPECT_GT(result.cases, 1000);
  EXPECT_EQ(result.training.size(), 8U);
  for (const SelfTest::Training& one : result.training) EXPECT_EQ(one.device, one.processor) << one.model;
  EXPECT_GT(reported, 0);
}

TEST(SelfTest, NamesAKernelThatIsWrong) {
  device::Target target = device::cpu_target(1);
  static const device::Binding own[] = {device::row<ops::Scale>(device::Wrong{})};
  static const std::vector<device::Binding> table = device::with_fallback(own, target.bindings);
  target.bindings = table;
  const SelfTest result =
      test_device(std::make_shared<device::HostDevice>(target), 0, [](const std::string&) {});
  EXPECT_FALSE(result.passed());
  ASSERT_FALSE(result.failures.empty());
  for (const std::string& failure : result.failures)
    EXPECT_TRUE(failure.starts_with("scale") || failure.starts_with("training")) << failure;
}

}  // namespace
}  // namespace strata::library
