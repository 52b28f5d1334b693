#include "device/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "device/cuda/staging.h"
#include "kernels/gpu/args.h"

namespace strata::device {
namespace {

using cuda::Card;
using cuda::Driver;

class CudaMemory final : public Memory {
 public:
  CudaMemory(const Card& card, int64_t bytes) : card_(card), bytes_(bytes) {
    card_.use();
    address_ = card_.allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1)), "the run");
  }
  ~CudaMemory() override {
    card_.driver->set_context(card_.context);
    card_.driver->free(address_);
  }
  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override {
    return reinterpret_cast<std::byte*>(address_);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  const Card& card_;
  int64_t bytes_;
  cuda::Pointer address_ = 0;
};

// Events, whose times are relative to one whose time by the host's clock is known.
class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(const Card& card, const CudaQueue& queue, size_t marks)
      : card_(card), driver_(*card.driver), queue_(queue), events_(marks) {
    card_.use();
    driver_.check(driver_.create_event(&start_, cuda::kEventWithTiming), "cuEventCreate");
    driver_.check(driver_.record_event(start_, queue_.stream()), "cuEventRecord");
    driver_.check(driver_.synchronize_event(start_), "cuEventSynchronize");
    started_ = monotonic_seconds();
  }
  ~CudaStopwatch() override {
    driver_.set_context(card_.context);
    driver_.destroy_event(start_);
    for (const cuda::Event event : events_)
      if (event != nullptr) driver_.destroy_event(event);
  }
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;

  void mark(size_t index) override {
    cuda::Event& event = events_[index];
    if (event == nullptr) queue_.check(driver_.create_event(&event, cuda::kEventWithTiming), "cuEventCreate");
    queue_.check(driver_.record_event(event, queue_.stream()), "cuEventRecord");
  }
  double at(size_t index) override {
    float milliseconds = 0;
    queue_.check(driver_.synchronize_event(events_[index]), "cuEventSynchronize");
    queue_.check(driver_.elapsed(&milliseconds, start_, events_[index]), "cuEventElapsedTime");
    return started_ + 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  const Card& card_;
  const Driver& driver_;
  const CudaQueue& queue_;
  cuda::Event start_ = nullptr;
  double started_ = 0;
  std::vector<cuda::Event> events_;
};

class CudaPoint final : public Point {
 public:
  CudaPoint(const Card& card, const CudaQueue& queue) : card_(card), queue_(queue), event_(card) {}
  void mark() override {
    queue_.check(card_.driver->record_event(event_.get(), queue_.stream()), "cuEventRecord");
  }
  cuda::Event event() const { return event_.get(); }

 private:
  const Card& card_;
  const CudaQueue& queue_;
  cuda::OwnEvent event_;
};

class CudaCapture final : public Capture {
 public:
  CudaCapture(const Card& card, const CudaQueue& queue, const std::byte* from, int64_t bytes)
      : card_(card), queue_(queue), from_(from), bytes_(bytes), copy_(card, bytes), taken_(card) {}
  ~CudaCapture() override {
    // After an error there may be no event after the copy.
    card_.driver->set_context(card_.context);
    card_.driver->synchronize_stream(queue_.stream());
  }
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;
  void take() override {
    queue_.check(card_.driver->copy_to_host_async(copy_.data(), reinterpret_cast<cuda::Pointer>(from_),
                                                  static_cast<size_t>(bytes_), queue_.stream()),
                 "cuMemcpyDtoHAsync");
    queue_.check(card_.driver->record_event(taken_.get(), queue_.stream()), "cuEventRecord");
  }
  const std::byte* content() const override {
    card_.use();
    queue_.check(card_.driver->synchronize_event(taken_.get()), "cuEventSynchronize");
    return copy_.data();
  }

 private:
  const Card& card_;
  const CudaQueue& queue_;
  const std::byte* from_;
  int64_t bytes_;
  cuda::PinnedMemory copy_;
  cuda::OwnEvent taken_;
};

hardware::DeviceSpec spec_of(const Card& card) {
  hardware::DeviceSpec spec;
  spec.name = card.name;
  spec.kind = "gpu";
  spec.architecture = card.capability;
  spec.multiprocessors = card.attribute(cuda::kMultiprocessors);
  spec.cores = spec.threads = 1;
  size_t bytes = 0;
  card.driver->check(card.driver->device_memory(&bytes, card.device), "cuDeviceTotalMem");
  spec.memory_bytes = static_cast<int64_t>(bytes);
  return spec;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const Card& card, std::span<const Binding> bindings)
      : Device({spec_of(card), bindings}),
        card_(card),
        queue_(card_),
        uploads_(card_, queue_),
        readers_(card_, queue_) {}
  ~CudaDevice() override {
    // Copies may still use pinned memory.
    card_.driver->set_context(card_.context);
    card_.driver->synchronize_stream(queue_.stream());
  }

  std::unique_ptr<Memory> allocate(int64_t bytes) override {
    auto memory = std::make_unique<CudaMemory>(card_, bytes);
    queue_.clear(memory->address(), bytes);
    return memory;
  }
  void upload(Memory& to, int64_t offset, const void* from, int64_t bytes) override {
    check_range(to, offset, bytes);
    uploads_.upload(to.address() + offset, from, bytes);
  }
  void download(const Memory& from, int64_t offset, void* to, int64_t bytes) const override {
    check_range(from, offset, bytes);
    if (bytes > 0) readers_.download(to, from.address() + offset, bytes, nullptr);
  }
  void download_after(const Point& point, const Memory& from, int64_t offset, void* to,
                      int64_t bytes) const override {
    check_range(from, offset, bytes);
    if (bytes > 0)
      readers_.download(to, from.address() + offset, bytes, dynamic_cast<const CudaPoint&>(point).event());
  }
  std::unique_ptr<Point> make_point() const override { return std::make_unique<CudaPoint>(card_, queue_); }
  std::unique_ptr<Capture> make_capture(const Memory& from, int64_t offset, int64_t bytes) const override {
    check_range(from, offset, bytes);
    return std::make_unique<CudaCapture>(card_, queue_, from.address() + offset, bytes);
  }
  Launch begin_launches() override {
    card_.use();
    return {.threads = 1, .queue = static_cast<GpuQueue*>(&queue_)};
  }
  bool runs_behind() const override { return true; }
  int64_t free_memory() const override {
    card_.use();
    size_t free = 0, total = 0;
    card_.driver->check(card_.driver->memory_info(&free, &total), "cuMemGetInfo");
    return static_cast<int64_t>(free);
  }
  std::unique_ptr<Stopwatch> stopwatch(size_t marks) const override {
    return std::make_unique<CudaStopwatch>(card_, queue_, marks);
  }
  PeakProduct peak_product(DType dtype) const override;

 private:
  static void check_range(const Memory& memory, int64_t offset, int64_t bytes) {
    STRATA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= memory.bytes(),
                 "bytes {} to {} of {} of a device's memory", offset, offset + bytes, memory.bytes());
  }

  Card card_;
  mutable CudaQueue queue_;
  UploadRing uploads_;
  mutable Readers readers_;
};

// y = x · wᵀ of three square matrices, as large as the whole GPU needs for full speed and its memory allows.
PeakProduct CudaDevice::peak_product(DType dtype) const {
  constexpr int64_t kLargest = 8192, kShare = 64;  // of the free memory
  int64_t n = kLargest;
  while (n > 128 && 3 * n * n * size_of(dtype) > free_memory() / kShare) n /= 2;
  struct Matrices {
    std::unique_ptr<Memory> all;
    std::unique_ptr<Memory> parts;
    gpu::GemmPlan plan;
  };
  const gpu::GemmShape shape{.layout = gpu::GemmLayout::kNT,
                             .dtype = dtype,
                             .out_dtype = dtype,
                             .m = n,
                             .n = n,
                             .k = n,
                             .a_stride = n,
                             .b_stride = n,
                             .c_stride = n};
  auto made = std::make_shared<Matrices>();
  made->plan = gpu::plan_gemm(shape, {.multiprocessors = std::max(1, spec().multiprocessors)});
  STRATA_CHECK(made->plan.splits == 1, "a square product of {} columns in parts", n);
  const int64_t bytes = n * n * size_of(dtype);
  made->all = std::make_unique<CudaMemory>(card_, 3 * bytes);
  queue_.clear(made->all->address(), 3 * bytes);
  const auto run = [this, made, n, bytes] {
    card_.use();
    const gpu::GemmArgs args{.a = made->all->address(),
                             .b = made->all->address() + bytes,
                             .c = made->all->address() + 2 * bytes,
                             .bias = nullptr,
                             .a_stride = n,
                             .b_stride = n,
                             .c_stride = n,
                             .m = static_cast<int32_t>(n),
                             .n = static_cast<int32_t>(n),
                             .k = static_cast<int32_t>(n),
                             .accumulate = 0,
                             .splits = 1,
                             .split_depth = made->plan.split_depth};
    queue_.start(made->plan.product, &args, sizeof args, "the measurement of the matmul peak");
    queue_.wait();
  };
  return {2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n), run};
}

}  // namespace

}  // namespace strata::device

extern "C" __attribute__((visibility("default"))) strata::device::Device* strata_open_cuda_device(
    int ordinal, const strata::device::Binding* bindings, size_t count) {
  using namespace strata;
  const cuda::Card card = cuda::open_card(ordinal);
  return new device::CudaDevice(card, {bindings, count});
}
