#include "ptx/order.h"

#include <algorithm>
#include <utility>

namespace strata::gpu_tests {

void Order::join(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t stream = 0; stream < from.size(); ++stream) into[stream] = std::max(into[stream], from[stream]);
}

StreamId Order::create_stream() {
  streams_.emplace_back();
  return static_cast<StreamId>(streams_.size() - 1);
}

EventId Order::create_event() {
  events_.emplace_back();
  return static_cast<EventId>(events_.size() - 1);
}

VectorClock Order::enqueue(StreamId stream) {
  VectorClock& clock = streams_.at(stream);
  join(clock, streams_[kHost]);
  if (clock.size() <= stream) clock.resize(stream + 1);
  ++clock[stream];
  return clock;
}

void Order::record(EventId event, StreamId stream) {
  VectorClock clock = streams_.at(stream);
  join(clock, streams_[kHost]);
  events_.at(event) = std::move(clock);
}

void Order::wait(StreamId stream, EventId event) {
  join(streams_.at(stream), events_.at(event));
}

void Order::synchronize(StreamId stream) {
  join(streams_[kHost], streams_.at(stream));
}

void Order::synchronize_event(EventId event) {
  join(streams_[kHost], events_.at(event));
}

unsigned OperationTable::start(Operation operation, VectorClock clock) {
  operations_.push_back(std::move(operation));
  current_ = std::move(clock);
  return static_cast<unsigned>(operations_.size());
}

bool OperationTable::before_current(unsigned number) const {
  const Operation& other = operations_[number - 1];
  return other.stream < current_.size() && current_[other.stream] >= other.place;
}

}  // namespace strata::gpu_tests
