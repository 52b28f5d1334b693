// Streams, events and pinned memory of a GPU, which are given back when they are destroyed. A destructor reports nothing:
// after an error of the GPU every call of the driver fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/driver.h"

namespace strata::cuda {

class OwnStream {
 public:
  explicit OwnStream(const Card& card) : card_(card) {
    card_.use();
    card_.driver->check(card_.driver->create_stream(&stream_, kNonBlockingStream), "cuStreamCreate");
  }
  ~OwnStream() {
    card_.driver->set_context(card_.context);
    card_.driver->synchronize_stream(stream_);
    card_.driver->destroy_stream(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream get() const { return stream_; }

 private:
  const Card& card_;
  Stream stream_ = nullptr;
};

class OwnEvent {
 public:
  explicit OwnEvent(const Card& card, unsigned flags = kEventWithoutTiming) : card_(card) {
    card_.use();
    card_.driver->check(card_.driver->create_event(&event_, flags), "cuEventCreate");
  }
  ~OwnEvent() {
    card_.driver->set_context(card_.context);
    card_.driver->destroy_event(event_);
  }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  Event get() const { return event_; }

 private:
  const Card& card_;
  Event event_ = nullptr;
};

class OwnMemory {
 public:
  // `what` needs the bytes, in messages.
  OwnMemory(const Card& card, int64_t bytes, const char* what) : card_(card) {
    card_.use();
    address_ = card_.allocate(static_cast<size_t>(bytes), what);
  }
  ~OwnMemory() {
    card_.driver->set_context(card_.context);
    card_.driver->free(address_);
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  std::byte* address() const {
    return reinterpret_cast<std::byte*>(address_);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  const Card& card_;
  Pointer address_ = 0;
};

// Memory of the host that the GPU copies from and to by itself.
class PinnedMemory {
 public:
  PinnedMemory(const Card& card, int64_t bytes) : card_(card) {
    card_.use();
    card_.driver->check(
        card_.driver->allocate_host(&data_, static_cast<size_t>(bytes), kPortableMemory | kMappedMemory),
        "cuMemHostAlloc");
  }
  ~PinnedMemory() {
    card_.driver->set_context(card_.context);
    card_.driver->free_host(data_);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const Card& card_;
  void* data_ = nullptr;
};

}  // namespace strata::cuda
