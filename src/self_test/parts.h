// The parts of a self-test. Each fills the state, the summary, the failures and the facts of its part, and looks at the time
// between its cases, models or runs.
#pragma once

#include "base/clock.h"
#include "self_test/self_test.h"

namespace strata::self_test {

class TimeLimit {
 public:
  explicit TimeLimit(double end) : end_(end) {}
  bool over() const { return monotonic_seconds() >= end_; }
  double left() const { return end_ - monotonic_seconds(); }

 private:
  double end_;  // by monotonic_seconds()
};

using DevicePtr = std::shared_ptr<device::Device>;

void test_machine(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_kernels(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_ops(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_curves(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_resume(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_steps(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);
void test_rates(const DevicePtr& device, const Options& options, TimeLimit limit, Part& part);

}  // namespace strata::self_test
