// Pinned memory of the host, and copies that use it.
//
// The GPU reads and writes pinned memory when a copy runs, at any time until the host has waited for it. The twin copies
// as late as allowed. It keeps what a copy's source had when the copy was called, and fills a copy's target, and
// compares when the copy runs: a program that changes either meanwhile is found. For the order of copies on different
// streams, every buffer has a region of the executor's memory of the same size, which copies access as they do the buffer.
#pragma once

#include <vector>

#include "twin/state.h"

namespace strata::twin {

// The bytes of a copy's target until the copy has run.
inline constexpr std::byte kPendingByte{0xcb};

struct PinnedBuffer {
  struct Copy {
    uint64_t number, offset, bytes;
    bool writes;
  };

  Card* card;
  std::byte* memory;
  size_t bytes;
  uint64_t region;  // address
  bool freed = false;
  std::vector<Copy> in_flight;
  uint64_t copies = 0;

  PinnedBuffer(Card& card, size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  bool overlaps(uint64_t offset, uint64_t size, bool only_writes) const;
};

// The buffer that has the byte, or null.
std::shared_ptr<PinnedBuffer> find_pinned(State& all, const void* memory);

// Copies between the host and the device. Pageable memory is read when a copy to the device is called; a copy to it has
// run when this returns (CUDA Driver API, "API synchronization behavior").
void copy_to_device(State& all, Card& card, cuda::Pointer to, const void* from, size_t bytes,
                    StreamId stream);
void copy_to_host(State& all, Card& card, void* to, cuda::Pointer from, size_t bytes, StreamId stream);

void* allocate_pinned(State& all, Card& card, size_t bytes);
void free_pinned(State& all, void* memory);

}  // namespace strata::twin
