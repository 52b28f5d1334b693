// What runs programs: memory, and how kernels are started on it. Nobody but a device looks into its memory;
// weights, batches and metrics go in and out by upload and download.
#pragma once

#include <memory>
#include <string>

#include "device/bindings.h"

namespace strata::device {

enum class MemorySpace : uint8_t {
  kDevice,  // what kernels compute on
  kHost,    // the host's, from which the device copies fast (pinned, where there is a difference)
};

// Memory of a device; given back when it is destroyed.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual int64_t bytes() const = 0;
  // As kernels address it. Only the device's own code may look at what is there.
  virtual std::byte* address() const = 0;
};

class Device {
 public:
  explicit Device(Target target) : target_(std::move(target)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Target& target() const { return target_; }
  const hardware::DeviceSpec& spec() const { return target_.spec; }

  // Zeros. WorldError where there is not enough.
  virtual std::unique_ptr<Memory> allocate(MemorySpace space, int64_t bytes) = 0;
  // Between the host and `bytes` bytes of device memory from `offset` on, behind all that was started before.
  // Several threads may copy disjoint parts at once.
  virtual void upload(Memory& to, int64_t offset, const void* from, int64_t bytes) = 0;
  virtual void download(const Memory& from, int64_t offset, void* to, int64_t bytes) const = 0;

  // How one executor starts its kernels, on the thread that calls it from now on.
  virtual Launch begin_launches() = 0;

 private:
  Target target_;
};

}  // namespace strata::device
