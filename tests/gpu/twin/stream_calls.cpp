// Calls of streams and events.
#include <atomic>

#include "twin/pinned.h"
#include "twin/state.h"

namespace strata::twin {

using cuda::Event;
using cuda::Stream;
using gpu_tests::EventId;

namespace {

// A query: the GPU goes on by one operation. What a query has seen done is in the past of the host, as after a wait.
template <typename Done>
void query(Card& card, Done done) {
  if (!done()) card.device.step();
  require(done(), kNotReady);
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names of the driver's symbols

Result cuStreamCreate(Stream* stream, unsigned flags) {
  return call("cuStreamCreate", Needs::kHealthyContext, [&](State& all, Card& card) {
    require(stream != nullptr && flags <= cuda::kNonBlockingStream, kInvalidValue);
    // Order with the null stream is not modelled.
    require(flags == cuda::kNonBlockingStream, kNotSupported);
    // A number is used again if its operations have run.
    StreamId id = 0;
    for (StreamId& old : card.destroyed) {
      if (!card.device.stream_done(old)) continue;
      id = old;
      old = card.destroyed.back();
      card.destroyed.pop_back();
      break;
    }
    if (id == 0) id = card.device.create_stream();
    *stream = reinterpret_cast<Stream>(all.streams.add({&card, id}, new_handle()));
  });
}
Result cuStreamDestroy_v2(Stream stream) {
  return call("cuStreamDestroy", Needs::kHealthyContext, [&](State& all, Card&) {
    const StreamObject object = all.streams.at(stream);
    object.card->destroyed.push_back(object.id);
    all.streams.remove(stream);
  });
}
Result cuStreamSynchronize(Stream stream) {
  return call("cuStreamSynchronize", Needs::kHealthyContext,
              [&](State& all, Card& card) { card.device.synchronize(all.stream_of(card, stream)); });
}
Result cuStreamQuery(Stream stream) {
  return call("cuStreamQuery", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    query(card, [&] { return card.device.stream_done(id); });
    card.device.synchronize(id);
  });
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::kHealthyContext, [&](State& all, Card& card) {
    require(flags == 0, kInvalidValue);
    const EventObject& object = all.events.at(event);
    const StreamId id = all.stream_of(card, stream);
    if (object.card == &card) {
      card.device.wait(id, object.id);
    } else {
      object.card->device.synchronize_event(object.id);  // of another GPU: its work runs first
    }
  });
}

// Into pinned memory only. The host may read the word at any time.
Result cuStreamWriteValue32_v2(Stream stream, cuda::Pointer address, uint32_t value, unsigned flags) {
  return call("cuStreamWriteValue32", Needs::kHealthyContext, [&](State& all, Card& card) {
    require(flags <= cuda::kWithoutBarrier && address % sizeof value == 0, kInvalidValue);
    auto* const word = reinterpret_cast<uint32_t*>(address);
    const std::shared_ptr<PinnedBuffer> buffer = find_pinned(all, word);
    require(buffer != nullptr, kInvalidValue);
    card.device.call([buffer, word, value] { std::atomic_ref(*word).store(value); },
                     all.stream_of(card, stream), "cuStreamWriteValue32");
  });
}

Result cuEventCreate(Event* event, unsigned flags) {
  return call("cuEventCreate", Needs::kHealthyContext, [&](State& all, Card& card) {
    // Blocking wait 1, without timing 2.
    require(event != nullptr && flags <= 3, kInvalidValue);
    EventId id = 0;
    if (card.idle_events.empty()) {
      id = card.device.create_event();
    } else {
      id = card.idle_events.back();
      card.idle_events.pop_back();
      card.device.forget(id);
    }
    *event = reinterpret_cast<Event>(all.events.add(
        {.card = &card, .id = id, .timed = (flags & cuda::kEventWithoutTiming) == 0, .time = {}},
        new_handle()));
  });
}
Result cuEventDestroy_v2(Event event) {
  return call("cuEventDestroy", Needs::kHealthyContext, [&](State& all, Card&) {
    const EventObject& object = all.events.at(event);
    object.card->idle_events.push_back(object.id);
    all.events.remove(event);
  });
}
Result cuEventRecord(Event event, Stream stream) {
  return call("cuEventRecord", Needs::kHealthyContext, [&](State& all, Card& card) {
    EventObject& object = all.events.at(event);
    require(object.card == &card, kInvalidHandle);
    const StreamId id = all.stream_of(card, stream);
    object.time = std::make_shared<std::optional<Clock::time_point>>();
    if (object.timed) card.device.call([time = object.time] { *time = Clock::now(); }, id, "event");
    card.device.record(object.id, id);
    object.recorded = true;
  });
}
Result cuEventSynchronize(Event event) {
  return call("cuEventSynchronize", Needs::kHealthyContext, [&](State& all, Card& card) {
    const EventObject& object = all.events.at(event);
    require(object.card == &card, kInvalidHandle);
    card.device.synchronize_event(object.id);
  });
}
Result cuEventQuery(Event event) {
  return call("cuEventQuery", Needs::kHealthyContext, [&](State& all, Card& card) {
    const EventObject& object = all.events.at(event);
    require(object.card == &card, kInvalidHandle);
    query(card, [&] { return card.device.event_done(object.id); });
    card.device.synchronize_event(object.id);
  });
}
Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  return call("cuEventElapsedTime", Needs::kHealthyContext, [&](State& all, Card&) {
    const EventObject &first = all.events.at(start), &last = all.events.at(end);
    require(milliseconds != nullptr, kInvalidValue);
    require(first.timed && last.timed && first.recorded && last.recorded, kInvalidHandle);
    require(first.time->has_value() && last.time->has_value(), kNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(**last.time - **first.time).count();
  });
}
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace strata::twin
