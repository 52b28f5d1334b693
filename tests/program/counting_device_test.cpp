// A device that computes nothing and counts its calls, written exactly as docs/adding-a-device.md describes.
#include <gtest/gtest.h>

#include <map>

#include "device/cpu/bindings.h"
#include "device/host_device.h"
#include "fixtures/tiny_program.h"

namespace strata::program {
namespace {

// An instance of a kernel's plan.
struct Counter {
  std::string op;
  int64_t calls = 0;
};
using Calls = std::map<const void*, std::shared_ptr<Counter>>;
thread_local Calls* made_now = nullptr;  // the instances of the executor under construction

device::BoundKernel count(const device::BindRequest& request) {
  return {.run = [](device::Launch&, void* counter,
                    std::byte* const*) { ++static_cast<Counter*>(counter)->calls; },
          .plan = std::make_shared<const std::string>(request.view.node.op->name),
          .scratch_bytes = 0,
          .instantiate = [](const void* plan) -> std::shared_ptr<void> {
            auto counter = std::make_shared<Counter>(Counter{*static_cast<const std::string*>(plan)});
            if (made_now != nullptr) (*made_now)[plan] = counter;
            return counter;
          }};
}

std::span<const device::Binding> counting_bindings() {
  static const std::vector<device::Binding> table = [] {
    std::vector<device::Binding> rows;
    for (const device::Binding& row : device::cpu_bindings()) rows.push_back({row.op, count});
    return rows;
  }();
  return table;
}

class CountingDevice final : public device::HostDevice {
 public:
  CountingDevice() : HostDevice({spec_of(), counting_bindings()}) {}

 private:
  static hardware::DeviceSpec spec_of() {
    hardware::DeviceSpec spec;
    spec.name = "a device that counts";
    spec.kind = "counting";
    spec.threads = 1;
    return spec;
  }
};

TEST(CountingDevice, RunsEveryInstructionOfAStepOnce) {
  const auto counting = std::make_shared<CountingDevice>();
  CompileOptions options = tiny_options("llama3-5m");
  options.target = counting->target();
  const Request request = tiny_request(3);
  const auto set = compile({request}, options);
  Calls calls;
  made_now = &calls;
  Executor executor(set, counting);
  made_now = nullptr;
  executor.run_script(0);

  std::map<std::string, int64_t> expected, found;
  const Program& program = set->programs[0];
  for (int s = 0; s < kSegments; ++s) {
    const auto segment = static_cast<Segment>(s);
    const int64_t times = is_of_micro_batch(segment) ? request.micro_batches : 1;
    for (const Instruction& instruction : program.segment(segment))
      expected[std::string(program.node_of(instruction).op->name)] += times;
  }
  for (const auto& [plan, counter] : calls) found[counter->op] += counter->calls;
  EXPECT_EQ(found, expected);
  EXPECT_GT(found["attention_grad"], 0);
  // No kernel needs a packed weight, so there is none.
  EXPECT_FALSE(found.contains("pack_weight"));
}

}  // namespace
}  // namespace strata::program
