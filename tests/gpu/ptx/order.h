// Streams, events and the happens-before order of operations. The host is a stream too (kHost): its
// operations happen after everything that it has waited for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/shadow.h"

namespace strata::gpu_tests {

using StreamId = uint32_t;
using EventId = uint32_t;
inline constexpr StreamId kHost = 0;

// For each stream, the number of its operations in the past.
using VectorClock = std::vector<uint32_t>;

class Order {
 public:
  Order() : streams_(1) {}

  StreamId create_stream();
  EventId create_event();
  void forget(EventId event) { events_.at(event).clear(); }
  size_t streams() const { return streams_.size(); }

  // The next operation of a stream: its clock, including itself.
  VectorClock enqueue(StreamId stream);
  void record(EventId event, StreamId stream);
  // Operations enqueued later happen after those that the event recorded, if any.
  void wait(StreamId stream, EventId event);
  // The host waits.
  void synchronize(StreamId stream);
  void synchronize_event(EventId event);
  const VectorClock& event_clock(EventId event) const { return events_.at(event); }
  const VectorClock& stream_clock(StreamId stream) const { return streams_.at(stream); }

 private:
  static void join(VectorClock& into, const VectorClock& from);

  std::vector<VectorClock> streams_;
  std::vector<VectorClock> events_;
};

// The operations that stamps refer to: number, stream, position in it, and a name for messages.
class OperationTable final : public OperationOrder {
 public:
  struct Operation {
    StreamId stream;
    uint32_t place;
    std::string name;
    const void* kernel;  // kernel of a launch, else null
    unsigned grid[3];
    unsigned block[3];
  };

  // True if all numbers are used up: clear the shadows and restart the table.
  bool full() const { return operations_.size() >= Stamp::kMaxOperation; }
  void restart() { operations_.clear(); }
  // Starts an operation and makes it the current one. Numbers start at 1.
  unsigned start(Operation operation, VectorClock clock);
  const Operation& at(unsigned number) const { return operations_.at(number - 1); }
  bool before_current(unsigned number) const override;

 private:
  std::vector<Operation> operations_;
  VectorClock current_;
};

}  // namespace strata::gpu_tests
