#include "device/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "device/cuda/measure.h"
#include "device/cuda/staging.h"

namespace strata::device {
namespace {

using cuda::Card;
using cuda::Driver;

class CudaMemory final : public Memory {
 public:
  CudaMemory(const Card& card, int64_t bytes)
      : own_(card, std::max<int64_t>(bytes, 1), "the run"), bytes_(bytes) {}
  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override { return own_.address(); }

 private:
  cuda::OwnMemory own_;
  int64_t bytes_;
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
  int version = 0;
  card.driver->check(card.driver->driver_version(&version), "cuDriverGetVersion");
  spec.library = fmt::format("CUDA driver {}.{}", version / 1000, version % 1000 / 10);
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
  bool is_asynchronous() const override { return true; }
  int64_t free_memory() const override {
    card_.use();
    size_t free = 0, total = 0;
    card_.driver->check(card_.driver->memory_info(&free, &total), "cuMemGetInfo");
    return static_cast<int64_t>(free);
  }
  std::string other_users() const override { return cuda::users_of(card_); }
  std::unique_ptr<Stopwatch> stopwatch(size_t marks) const override {
    return std::make_unique<CudaStopwatch>(card_, queue_, marks);
  }
  PeakProduct peak_product(DType dtype) const override {
    return square_product(card_, queue_, spec().multiprocessors, dtype);
  }
  hardware::DeviceSpec measure_peaks(double seconds) const override {
    return measure_gpu(card_, queue_, spec(), seconds);
  }
  hardware::DeviceSpec measured(FileSystem& files, bool fresh) const override {
    hardware::DeviceSpec kept = spec();
    if (!fresh && hardware::load_cached_device(kept)) return kept;
    hardware::DeviceSpec now = measure_peaks(1.0);
    hardware::save_cached_device(files, now);
    return now;
  }

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

}  // namespace

}  // namespace strata::device

extern "C" __attribute__((visibility("default"))) strata::device::Device* strata_open_cuda_device(
    int ordinal, const strata::device::Binding* bindings, size_t count) {
  using namespace strata;
  const cuda::Card card = cuda::open_card(ordinal);
  return new device::CudaDevice(card, {bindings, count});
}
