#include "device/host_device.h"

#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

class HostMemory final : public Memory {
 public:
  explicit HostMemory(int64_t bytes) : arena_(bytes) {}
  int64_t bytes() const override { return arena_.size(); }
  std::byte* address() const override { return arena_.data(); }

 private:
  Arena arena_;
};

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(size_t marks) : seconds_(marks) {}
  void mark(size_t index) override { seconds_[index] = monotonic_seconds(); }
  double at(size_t index) override { return seconds_[index]; }

 private:
  std::vector<double> seconds_;
};

void check_range(const Memory& memory, int64_t offset, int64_t bytes) {
  STRATA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= memory.bytes(),
               "bytes {} to {} of {} of a device's memory", offset, offset + bytes, memory.bytes());
}

}  // namespace

std::unique_ptr<Memory> HostDevice::allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

void HostDevice::upload(Memory& to, int64_t offset, const void* from, int64_t bytes) {
  check_range(to, offset, bytes);
  if (bytes > 0) std::memcpy(to.address() + offset, from, static_cast<size_t>(bytes));
}

void HostDevice::download(const Memory& from, int64_t offset, void* to, int64_t bytes) const {
  check_range(from, offset, bytes);
  if (bytes > 0) std::memcpy(to, from.address() + offset, static_cast<size_t>(bytes));
}

Launch HostDevice::begin_launches() {
  set_compute_threads(spec().threads);
  return {.threads = spec().threads};
}

std::unique_ptr<Stopwatch> HostDevice::stopwatch(size_t marks) const {
  return std::make_unique<HostStopwatch>(marks);
}

}  // namespace strata::device
