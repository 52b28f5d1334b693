// The PTX executor's interface: memory, modules, streams, events and launches.
//
//   Device device({.seed = 3});
//   Module& module = device.load(read_file("kernels.ptx"), "kernels.ptx");
//   const uint64_t x = device.allocate(4096, "x");
//   device.write(x, data.data(), 4096);                       // by the host, immediately
//   const StreamId stream = device.create_stream();
//   device.launch(module.kernel("scale"), {.grid = {8}, .block = {128}, .stream = stream}, x, 1024, 2.0f);
//   device.synchronize(stream);                               // runs its operations; throws Violation
//   device.read(x, data.data(), 4096);
//
// Launches and copies are queued in streams and run when the host waits, in a random order (from the seed)
// among those that streams and events allow. Accesses that these do not order are a race, whatever the
// execution order was. A device must be used by one thread only.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/memory.h"
#include "ptx/module.h"
#include "ptx/order.h"
#include "ptx/run.h"
#include "ptx/traffic.h"
#include "ptx/violation.h"

namespace strata::gpu_tests {

struct DeviceOptions {
  uint64_t seed = 1;
  Checks checks{};
  uint64_t instruction_limit = 4'000'000'000;  // warp instructions of one launch
  uint64_t shared_limit = 227 * 1024;          // per block
  MmaSum mma = MmaSum::kEachProduct;
  uint64_t memory_base = kGlobalBase;  // the first address
  bool traffic = false;                // whether it is counted by kernel, which takes half the time again
};

// {8} is 8 × 1 × 1.
struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  unsigned operator[](size_t axis) const { return axis == 0 ? x : axis == 1 ? y : z; }
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct LaunchShape {
  Extent grid{};
  Extent block{};
  uint64_t shared_bytes = 0;  // dynamic
  StreamId stream = 1;        // exists on every device
};

// A kernel's argument: its value on the host.
struct Argument {
  const void* value;
  size_t bytes;
};

class Device {
 public:
  explicit Device(DeviceOptions options = {});

  Memory& memory() { return memory_; }
  const Counters& counters() const { return counters_; }
  const TrafficByKernel& traffic() const { return traffic_; }
  Module& load(std::string_view text, const std::string& file);

  uint64_t allocate(uint64_t bytes, std::string name = "") {
    return memory_.allocate(bytes, std::move(name)).base;
  }
  void free(uint64_t address);

  // Immediate host accesses. They are checked against operations in flight.
  void write(uint64_t address, const void* from, uint64_t bytes);
  void read(uint64_t address, void* to, uint64_t bytes);

  // Stream operations. They access host memory when they run; it must stay valid until then.
  void copy_in(uint64_t to, const void* from, uint64_t bytes, StreamId stream);
  void copy_out(void* to, uint64_t from, uint64_t bytes, StreamId stream);
  void copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream);
  void fill(uint64_t to, std::byte value, uint64_t bytes, StreamId stream);
  void call(std::function<void()> function, StreamId stream, std::string name = "call of the host");
  // For a function that `call` runs: checks an access and returns its bytes (null for none).
  std::byte* access(uint64_t address, uint64_t bytes, bool write, const std::string& what) {
    return touch(address, bytes, write, what, false);
  }

  // `params` has the parameters in the layout of the kernel's ABI.
  void launch_raw(const Kernel& kernel, const LaunchShape& shape, std::vector<std::byte> params);
  void launch_arguments(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments);
  template <typename... P>
  void launch(const Kernel& kernel, const LaunchShape& shape, const P&... params) {
    launch_arguments(kernel, shape, std::initializer_list<Argument>{Argument{&params, sizeof params}...});
  }

  StreamId create_stream() { return order_.create_stream(); }
  EventId create_event() { return order_.create_event(); }
  // As if it had just been created.
  void forget(EventId event) { order_.forget(event); }
  void record(EventId event, StreamId stream) { order_.record(event, stream); }
  void wait(StreamId stream, EventId event) { order_.wait(stream, event); }
  void synchronize(StreamId stream);
  void synchronize_event(EventId event);
  void synchronize();
  // Runs one operation that may run now, as a GPU does without being asked. False: there is none.
  bool step();
  // Whether everything before has run. Queries run nothing and establish no order.
  bool stream_done(StreamId stream) const { return done(order_.stream_clock(stream)); }
  bool event_done(EventId event) const { return done(order_.event_clock(event)); }

 private:
  struct Operation {
    std::string name;
    StreamId stream;
    VectorClock clock;
    std::function<void()> run;
    const Kernel* kernel = nullptr;
    LaunchShape shape;
  };

  void check_launch(const Kernel& kernel, const LaunchShape& shape) const;
  void enqueue(std::string name, StreamId stream, std::function<void()> run, const Kernel* kernel = nullptr,
               const LaunchShape& shape = {});
  void run_until(const VectorClock& needed);
  bool done(const VectorClock& needed) const;
  void start(Operation& operation);
  // The bytes of a copy or a host access, after the checks.
  std::byte* touch(uint64_t address, uint64_t bytes, bool write, const std::string& what,
                   bool needs_written = true);

  DeviceOptions options_;
  Memory memory_;
  std::list<Module> modules_;
  Order order_;
  OperationTable table_;
  std::vector<std::deque<Operation>> queues_;  // by stream
  unsigned current_ = 0;
  Dice dice_;
  Counters counters_;
  TrafficByKernel traffic_;
};

}  // namespace strata::gpu_tests
