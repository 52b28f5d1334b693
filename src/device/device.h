// Runs programs: owns memory and starts kernels on it. Only the device accesses its memory; weights, batches
// and metrics enter and leave by upload and download.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "device/bindings.h"

namespace strata::device {

// Memory of a device; given back when it is destroyed.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual int64_t bytes() const = 0;
  // As kernels address it. Only the device's own code may access the content.
  virtual std::byte* address() const = 0;
};

// When a queue comes to certain points: kernels are timed by the device that runs them.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // A point after all work that was started before. A mark may be set again.
  virtual void mark(size_t index) = 0;
  // When the queue came to it, in seconds of the host's clock (base/clock.h); waits until it has.
  virtual double at(size_t index) = 0;
};

// A point in the order of a device's work. A mark may be set again.
class Point {
 public:
  virtual ~Point() = default;
  // After all work that was started before.
  virtual void mark() = 0;
};

// The host's copy of a part of a device's memory, which it reads while the device goes on.
class Capture {
 public:
  virtual ~Capture() = default;
  // Copies the part after all work that was started before. Does not wait.
  virtual void take() = 0;
  // The part as it was then; waits until it is here. Valid until the next take(). Several threads may call it.
  virtual const std::byte* content() const = 0;
};

// A matrix product by which a device's peak is measured.
struct PeakProduct {
  double flops = 0;           // of one repetition
  std::function<void()> run;  // one repetition, done when it returns; owns its buffers
};

class Device {
 public:
  explicit Device(Target target) : target_(std::move(target)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Target& target() const { return target_; }
  const hardware::DeviceSpec& spec() const { return target_.spec; }

  // Zero-filled. WorldError if there is not enough memory.
  virtual std::unique_ptr<Memory> allocate(int64_t bytes) = 0;
  // Copies between the host and `bytes` bytes of device memory from `offset` on, after all work that was
  // started before. Returns when the host's bytes are free again or have arrived. Several threads may copy disjoint
  // parts at the same time.
  virtual void upload(Memory& to, int64_t offset, const void* from, int64_t bytes) = 0;
  virtual void download(const Memory& from, int64_t offset, void* to, int64_t bytes) const = 0;
  // Like download(), but concurrent with the work that was started after `point`, which must not write these bytes.
  virtual void download_after(const Point& point, const Memory& from, int64_t offset, void* to,
                              int64_t bytes) const;
  virtual std::unique_ptr<Point> make_point() const;
  // `from` must outlive it.
  virtual std::unique_ptr<Capture> make_capture(const Memory& from, int64_t offset, int64_t bytes) const;

  // How one executor starts its kernels, on the thread that calls it from now on.
  virtual Launch begin_launches() = 0;
  // Whether kernels run after the calls that start them have returned. Their errors are then thrown by a later call, as
  // WorldError with the name of the instruction. Where this is false, points are past and captures are copies.
  virtual bool is_asynchronous() const { return false; }
  // What allocations may take now, in bytes.
  virtual int64_t free_memory() const;
  // Other programs that use it, "python3 (4711)"; empty if none is known.
  virtual std::string other_users() const { return {}; }
  // With a capacity of `marks` marks, on the queue of begin_launches() of the same thread.
  virtual std::unique_ptr<Stopwatch> stopwatch(size_t marks) const = 0;

  // --- Measurements. InternalError if a device cannot be measured. The spec with peaks and the rates of all
  // ops: kept ones, else measured now (10 to 40 s) and kept. `fresh`: always measured.
  virtual hardware::DeviceSpec measured(FileSystem& files, bool fresh = false) const;
  // The spec with only the peaks, measured within about `seconds`.
  virtual hardware::DeviceSpec measure_peaks(double seconds) const;
  // Rates of the ops whose name begins with `family`.
  virtual std::vector<hardware::FamilyRate> measure_ops(double seconds, std::string_view family) const;
  // The fastest matrix product with a packed weight: the yardstick of a step, to be interleaved with it.
  virtual PeakProduct peak_product(DType dtype) const;
  // Seconds of one pass over `bytes` of memory, which stay allocated between calls: a = b + s c over three
  // arrays of `bytes` in total, or reading all of them.
  virtual std::function<double()> triad_loop(int64_t bytes) const;
  virtual std::function<double()> reading_loop(int64_t bytes) const;

 private:
  Target target_;
};

}  // namespace strata::device
