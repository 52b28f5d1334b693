#include "ptx/device.h"

#include <fmt/core.h>

#include <algorithm>

namespace strata::gpu_tests {
namespace {

[[noreturn]] void refuse(const Kernel& kernel, const std::string& why) {
  ViolationDetails details;
  details.fault = Fault::kLaunch;
  details.kernel = kernel.name;
  throw Violation(fmt::format("[launch] kernel {}: {}", kernel.name, why), details);
}

}  // namespace

Device::Device(DeviceOptions options) : options_(options), memory_(options.memory_base), dice_(options.seed) {
  order_.create_stream();
}

Module& Device::load(std::string_view text, const std::string& file) {
  return modules_.emplace_back(text, file, memory_);
}

void Device::free(uint64_t address) {
  synchronize();
  memory_.free(address);
}

std::byte* Device::touch(uint64_t address, uint64_t bytes, bool write, const std::string& what,
                         bool needs_written) {
  ViolationDetails details;
  details.address = address;
  Region* region = memory_.find(address);
  const uint64_t offset = region == nullptr ? 0 : address - region->base;
  if (region == nullptr || offset > region->size || region->size - offset < bytes) {
    details.fault = Fault::kOutOfBounds;
    if (region != nullptr) details.allocation = region->name;
    throw Violation(
        fmt::format("[out of bounds] {}: {} bytes at +{} of {} ({} bytes)", what, bytes, offset,
                    region == nullptr ? "no allocation" : region->name, region == nullptr ? 0 : region->size),
        details);
  }
  details.allocation = region->name;
  if (region->freed) {
    details.fault = Fault::kFreed;
    throw Violation(fmt::format("[freed] {}: {} was freed", what, region->name), details);
  }
  if (bytes == 0) return nullptr;
  Actor actor;
  actor.stamp.operation = current_ & Stamp::kMaxOperation;
  actor.order = &table_;
  Conflict conflict;
  const bool ok = !options_.checks.races || (write ? region->shadow.write(offset, bytes, actor, &conflict)
                                                   : region->shadow.read(offset, bytes, actor, &conflict));
  if (!ok) {
    const OperationTable::Operation& other = table_.at(static_cast<unsigned>(conflict.other.operation));
    details.fault = Fault::kRace;
    details.other = other.name;
    throw Violation(
        fmt::format("[race] {} {} {} while \"{}\" on stream {} {} it, without an order between them", what,
                    write ? "writes" : "reads", region->name, other.name, other.stream,
                    conflict.other_wrote ? "writes" : "reads"),
        details);
  }
  if (write) {
    region->mark(offset, bytes, true);
  } else if (needs_written && options_.checks.unwritten && !region->written(offset, bytes)) {
    details.fault = Fault::kUnwritten;
    throw Violation(fmt::format("[unwritten] {}: byte {} of {} was never written", what,
                                region->first_unwritten(offset, bytes), region->name),
                    details);
  }
  return region->data.data() + offset;
}

void Device::write(uint64_t address, const void* from, uint64_t bytes) {
  Operation one{"write of the host", kHost, order_.enqueue(kHost), {}, nullptr, {}};
  start(one);
  std::byte* to = touch(address, bytes, true, one.name);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::read(uint64_t address, void* to, uint64_t bytes) {
  Operation one{"read of the host", kHost, order_.enqueue(kHost), {}, nullptr, {}};
  start(one);
  const std::byte* from = touch(address, bytes, false, one.name);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::copy_in(uint64_t to, const void* from, uint64_t bytes, StreamId stream) {
  enqueue("copy to the device", stream, [=, this] {
    std::byte* place = touch(to, bytes, true, "copy to the device");
    if (bytes > 0) std::memcpy(place, from, bytes);
  });
}

void Device::copy_out(void* to, uint64_t from, uint64_t bytes, StreamId stream) {
  enqueue("copy to the host", stream, [=, this] {
    const std::byte* place = touch(from, bytes, false, "copy to the host");
    if (bytes > 0) std::memcpy(to, place, bytes);
  });
}

void Device::copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream) {
  enqueue("copy on the device", stream, [=, this] {
    const std::byte* source = touch(from, bytes, false, "copy on the device", false);
    std::byte* place = touch(to, bytes, true, "copy on the device");
    if (bytes == 0) return;
    std::memmove(place, source, bytes);
    // Copying unwritten bytes leaves the target unwritten.
    const Region& origin = *memory_.find(from);
    Region& target = *memory_.find(to);
    for (uint64_t at = origin.first_unwritten(from - origin.base, bytes) - (from - origin.base); at < bytes;
         ++at) {
      if (!origin.written(from - origin.base + at, 1)) target.mark(to - target.base + at, 1, false);
    }
  });
}

void Device::fill(uint64_t to, std::byte value, uint64_t bytes, StreamId stream) {
  enqueue("fill", stream, [=, this] {
    std::byte* place = touch(to, bytes, true, "fill");
    std::fill_n(place, bytes, value);
  });
}

void Device::call(std::function<void()> function, StreamId stream, std::string name) {
  enqueue(std::move(name), stream, std::move(function));
}

void Device::launch_arguments(const Kernel& kernel, const LaunchShape& shape,
                              std::span<const Argument> arguments) {
  if (arguments.size() != kernel.params.size())
    refuse(kernel, fmt::format("{} arguments: expected {}", arguments.size(), kernel.params.size()));
  std::vector<std::byte> bytes(kernel.param_bytes);
  for (size_t n = 0; n < arguments.size(); ++n) {
    const KernelParam& param = kernel.params[n];
    if (param.bytes != arguments[n].bytes) {
      refuse(kernel,
             fmt::format("parameter {} has {} bytes, the argument {}", n, param.bytes, arguments[n].bytes));
    }
    std::memcpy(bytes.data() + param.offset, arguments[n].value, param.bytes);
  }
  launch_raw(kernel, shape, std::move(bytes));
}

void Device::check_launch(const Kernel& kernel, const LaunchShape& shape) const {
  const uint64_t threads = shape.block.count();
  const uint64_t blocks = shape.grid.count();
  if (threads == 0 || threads > 1024 || shape.block[2] > 64)
    refuse(kernel, fmt::format("a block of {} threads", threads));
  if (blocks == 0 || shape.grid[1] > 65535 || shape.grid[2] > 65535)
    refuse(kernel, fmt::format("a grid of {} blocks", blocks));
  if (blocks > Stamp::kMaxBlocks)
    refuse(kernel, fmt::format("a grid of {} blocks: the executor takes {}", blocks, Stamp::kMaxBlocks));
  for (size_t axis = 0; axis < 3; ++axis) {
    const unsigned required = kernel.required_threads[axis];
    if (required != 0 && shape.block[axis] != required)
      refuse(kernel, "the block size differs from .reqntid");
  }
  const uint64_t most = uint64_t{kernel.max_threads[0]} * kernel.max_threads[1] * kernel.max_threads[2];
  if (most != 0 && threads > most)
    refuse(kernel, fmt::format("a block of {} threads: .maxntid allows {}", threads, most));
  if (kernel.shared_used > 48 * 1024)
    refuse(kernel, fmt::format("{} bytes of static shared memory", kernel.shared_used));
  if (kernel.shared_used + shape.shared_bytes > options_.shared_limit) {
    refuse(kernel, fmt::format("{} bytes of shared memory: the limit is {}",
                               kernel.shared_used + shape.shared_bytes, options_.shared_limit));
  }
}

void Device::launch_raw(const Kernel& kernel, const LaunchShape& shape, std::vector<std::byte> params) {
  check_launch(kernel, shape);
  if (params.size() != kernel.param_bytes)
    refuse(kernel, fmt::format("{} bytes of parameters, not {}", params.size(), kernel.param_bytes));
  auto run = [this, &kernel, shape, bytes = std::move(params)] {
    Launch one;
    one.kernel = &kernel;
    one.memory = &memory_;
    one.operations = &table_;
    one.operation = current_;
    for (size_t axis = 0; axis < 3; ++axis) {
      one.grid[axis] = shape.grid[axis];
      one.block[axis] = shape.block[axis];
    }
    one.dynamic_shared = shape.shared_bytes;
    one.params = Region("parameters", Space::kParam, 0, bytes.size());
    one.params.data = bytes;
    one.params.mark(0, bytes.size(), true);
    one.params.read_only = true;
    one.checks = options_.checks;
    one.mma = options_.mma;
    one.instruction_limit = options_.instruction_limit;
    one.counters = &counters_;
    if (options_.traffic) {
      Traffic& traffic = traffic_[kernel.name];
      traffic.kernel = &kernel;
      ++traffic.launches;
      traffic.threads = std::max<uint64_t>(traffic.threads, shape.block.count());
      traffic.shared_bytes = std::max(traffic.shared_bytes, kernel.shared_used + shape.shared_bytes);
      one.traffic = &traffic;
    }
    run_grid(one, dice_);
  };
  enqueue(kernel.name, shape.stream, std::move(run), &kernel, shape);
}

void Device::enqueue(std::string name, StreamId stream, std::function<void()> run, const Kernel* kernel,
                     const LaunchShape& shape) {
  if (stream == kHost || stream >= order_.streams())
    throw std::invalid_argument(fmt::format("stream {} does not exist", stream));
  queues_.resize(order_.streams());
  queues_[stream].push_back({std::move(name), stream, order_.enqueue(stream), std::move(run), kernel, shape});
}

void Device::start(Operation& operation) {
  if (table_.full()) {
    memory_.clear_shadows();
    table_.restart();
  }
  OperationTable::Operation entry{
      operation.stream, operation.clock[operation.stream], operation.name, operation.kernel, {}, {}};
  for (size_t axis = 0; axis < 3; ++axis) {
    entry.grid[axis] = operation.shape.grid[axis];
    entry.block[axis] = operation.shape.block[axis];
  }
  current_ = table_.start(std::move(entry), operation.clock);
}

bool Device::done(const VectorClock& needed) const {
  return std::none_of(queues_.begin(), queues_.end(), [&](const std::deque<Operation>& queue) {
    if (queue.empty()) return false;
    const Operation& head = queue.front();
    return head.stream < needed.size() && head.clock[head.stream] <= needed[head.stream];
  });
}

// The head of a stream that waits for no other head, if there is one.
bool Device::step() {
  std::vector<size_t> ready;
  for (size_t n = 0; n < queues_.size(); ++n) {
    if (queues_[n].empty()) continue;
    const VectorClock& clock = queues_[n].front().clock;
    const bool waits = std::any_of(queues_.begin(), queues_.end(), [&](const std::deque<Operation>& other) {
      if (other.empty() || &other == &queues_[n]) return false;
      const Operation& head = other.front();
      return head.stream < clock.size() && head.clock[head.stream] <= clock[head.stream];
    });
    if (!waits) ready.push_back(n);
  }
  if (ready.empty()) return false;
  std::deque<Operation>& queue = queues_[ready[dice_.below(static_cast<uint32_t>(ready.size()))]];
  Operation one = std::move(queue.front());
  queue.pop_front();
  start(one);
  one.run();
  return true;
}

void Device::run_until(const VectorClock& needed) {
  while (!done(needed)) step();
}

void Device::synchronize(StreamId stream) {
  const VectorClock clock = order_.stream_clock(stream);
  order_.synchronize(stream);
  run_until(clock);
}

void Device::synchronize_event(EventId event) {
  const VectorClock clock = order_.event_clock(event);
  order_.synchronize_event(event);
  run_until(clock);
}

void Device::synchronize() {
  for (StreamId stream = 1; stream < order_.streams(); ++stream) synchronize(stream);
}

}  // namespace strata::gpu_tests
