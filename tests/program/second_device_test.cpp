// A second device: one table, one file for a family of ops, and reference kernels for all other ops
// (docs/adding-a-device.md).
#include <gtest/gtest.h>

#include <cmath>

#include "device/bind.h"
#include "device/host_device.h"
#include "device/reference/bindings.h"
#include "fixtures/tiny_program.h"
#include "ops/activation/activation.h"

namespace strata::device {

struct Second {};
template <typename Op>
BoundKernel bind(Second, const Bind<Op>& node);

namespace {

// Counts completed calls; the count is the device's clock.
struct Work {
  int64_t done = 0;
};
Work& work_of(Launch& launch) {
  return *static_cast<Work*>(launch.queue);
}

float silu(float x) {
  return x / (1 + std::exp(-x));
}

}  // namespace

// The family of gated activations.
template <>
BoundKernel bind(Second, const Bind<ops::Gated>& node) {
  const Shape& shape = node.in.gate_up->shape;
  return node.kernel([rows = shape[0], width = shape[1] / 2](const Operands<ops::Gated>& at) {
    const auto* in = reinterpret_cast<const float*>(at.in.gate_up);
    auto* out = reinterpret_cast<float*>(at.out.y);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i)
        out[row * width + i] = silu(in[row * 2 * width + i]) * in[(row * 2 + 1) * width + i];
    }
    ++work_of(at.launch).done;
  });
}

namespace {

std::span<const Binding> second_bindings() {
  static const Binding own[] = {row<ops::Gated>(Second{})};
  static const std::vector<Binding> all = with_fallback(own, reference_bindings());
  return all;
}

class SecondDevice final : public HostDevice {
 public:
  SecondDevice() : HostDevice({spec_of(), second_bindings()}) {}
  Launch begin_launches() override { return {.threads = 1, .queue = &work_}; }
  std::unique_ptr<Stopwatch> stopwatch(size_t marks) const override {
    struct Counts final : Stopwatch {
      Counts(const Work& of, size_t size) : work(of), at_mark(size) {}
      void mark(size_t index) override { at_mark[index] = static_cast<double>(work.done); }
      double at(size_t index) override { return at_mark[index]; }
      const Work& work;
      std::vector<double> at_mark;
    };
    return std::make_unique<Counts>(work_, marks);
  }
  const Work& work() const { return work_; }

 private:
  static hardware::DeviceSpec spec_of() {
    hardware::DeviceSpec spec;
    spec.name = "a second device";
    spec.kind = "second";
    spec.threads = 1;
    return spec;
  }
  Work work_;
};

TEST(SecondDevice, RunsItsKernelsOnItsQueueAndReferenceKernelsOtherwise) {
  using namespace program;
  const auto second = std::make_shared<SecondDevice>();
  const auto losses = [](const std::shared_ptr<Device>& device, Executor** ran,
                         std::unique_ptr<Executor>& executor) {
    CompileOptions options = tiny_options("llama3-5m");
    options.target = device->target();
    executor = std::make_unique<Executor>(compile({tiny_request(2)}, options), device);
    fill_tiny(*executor);
    executor->reset_timings();
    executor->run_script(0);
    *ran = executor.get();
    return executor->read<double>("loss_sum");
  };
  std::unique_ptr<Executor> own, plain;
  Executor* ran = nullptr;
  const double loss = losses(second, &ran, own);
  double timed = 0;
  int64_t calls = 0;
  const Program& compiled = ran->program(0);
  for (int s = 0; s < kSegments; ++s) {
    for (const bool accumulates : {false, true}) {
      const SegmentAt segment(static_cast<Segment>(s));
      const auto& instructions = compiled.segment(segment, accumulates);
      for (size_t i = 0; i < instructions.size(); ++i) {
        const Timing& timing = ran->timings(0, segment, accumulates)[i];
        const bool is_own = compiled.node_of(instructions[i]).op == &ops::Gated::def;
        EXPECT_EQ(timing.seconds, is_own ? static_cast<double>(timing.calls) : 0.0);
        timed += timing.seconds;
        calls += is_own ? static_cast<int64_t>(timing.calls) : 0;
      }
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(timed, static_cast<double>(calls)) << "times come from the device's clock";
  EXPECT_EQ(second->work().done, calls);

  struct Plain final : HostDevice {
    explicit Plain(Target target) : HostDevice(std::move(target)) {}
  };
  hardware::DeviceSpec spec = second->spec();
  const double wanted = losses(std::make_shared<Plain>(Target{spec, reference_bindings()}), &ran, plain);
  EXPECT_NEAR(loss, wanted, 1e-5 * wanted);
}

TEST(SecondDevice, NamesAMissingOp) {
  const Binding only[] = {row<ops::Gated>(Second{})};
  EXPECT_NO_THROW(find_binding(only, ops::Gated::def));
  try {
    find_binding(only, ops::GatedGrad::def);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(ops::GatedGrad::def.name), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::device
