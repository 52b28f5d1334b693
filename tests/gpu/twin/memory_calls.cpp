// Calls that allocate, copy and fill memory.
#include "twin/pinned.h"
#include "twin/state.h"

namespace strata::twin {

using cuda::Pointer;
using cuda::Stream;

namespace {

// An allocation of this GPU that has all these bytes, else the driver returns "invalid argument".
gpu_tests::Region& check_range(Card& card, Pointer address, size_t bytes) {
  gpu_tests::Region* region = card.device.memory().find(address);
  require(region != nullptr && !region->freed && address - region->base <= region->size &&
              region->size - (address - region->base) >= bytes,
          kInvalidValue);
  return *region;
}

void allocate(Card& card, Pointer* address, size_t bytes) {
  require(address != nullptr && bytes > 0, kInvalidValue);
  require(bytes <= card.memory - std::min(card.memory, card.used), kOutOfMemory);
  *address = card.device.allocate(bytes);
  card.used += bytes;
}

void check_allocation(Card& card, Pointer address) {
  require(check_range(card, address, 0).base == address, kInvalidValue);
}
void free(Card& card, Pointer address) {
  gpu_tests::Memory& memory = card.device.memory();
  card.used -= memory.find(address)->size;
  memory.free(address);
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names of the driver's symbols

Result cuMemAlloc_v2(Pointer* address, size_t bytes) {
  return call("cuMemAlloc", Needs::kHealthyContext,
              [&](State&, Card& card) { allocate(card, address, bytes); });
}
Result cuMemFree_v2(Pointer address) {
  return call("cuMemFree", Needs::kHealthyContext, [&](State&, Card& card) {
    check_allocation(card, address);
    card.device.synchronize();
    free(card, address);
  });
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call("cuMemGetInfo", Needs::kHealthyContext, [&](State&, Card& card) {
    *free = card.memory - std::min(card.memory, card.used);
    *total = card.memory;
  });
}
Result cuMemAllocAsync(Pointer* address, size_t bytes, Stream stream) {
  return call("cuMemAllocAsync", Needs::kHealthyContext, [&](State& all, Card& card) {
    all.stream_of(card, stream);
    allocate(card, address, bytes);
  });
}
Result cuMemFreeAsync(Pointer address, Stream stream) {
  return call("cuMemFreeAsync", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    check_allocation(card, address);
    // A write of all bytes: other streams must have finished with them.
    const uint64_t bytes = check_range(card, address, 0).size;
    card.device.call(
        [&card, address, bytes] {
          card.device.access(address, bytes, true, "free");
          free(card, address);
        },
        id, "free");
  });
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call("cuMemHostAlloc", Needs::kHealthyContext, [&](State& all, Card& card) {
    // Portable 1, mapped 2, write-combined 4.
    require(memory != nullptr && bytes > 0 && flags <= 7, kInvalidValue);
    *memory = allocate_pinned(all, card, bytes);
  });
}
Result cuMemFreeHost(void* memory) {
  return call("cuMemFreeHost", Needs::kHealthyContext, [&](State& all, Card&) { free_pinned(all, memory); });
}

Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, Stream stream) {
  return call("cuMemcpyHtoDAsync", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    if (bytes == 0) return;
    require(from != nullptr, kInvalidValue);
    check_range(card, to, bytes);
    inject(all, card, id, "cuMemcpyHtoDAsync");
    copy_to_device(all, card, to, from, bytes, id);
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, Stream stream) {
  return call("cuMemcpyDtoHAsync", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    if (bytes == 0) return;
    require(to != nullptr, kInvalidValue);
    check_range(card, from, bytes);
    inject(all, card, id, "cuMemcpyDtoHAsync");
    copy_to_host(all, card, to, from, bytes, id);
  });
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream stream) {
  return call("cuMemcpyDtoDAsync", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    if (bytes == 0) return;
    check_range(card, to, bytes);
    check_range(card, from, bytes);
    inject(all, card, id, "cuMemcpyDtoDAsync");
    card.device.copy(to, from, bytes, id);
  });
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Stream stream) {
  return call("cuMemsetD8Async", Needs::kHealthyContext, [&](State& all, Card& card) {
    const StreamId id = all.stream_of(card, stream);
    if (bytes == 0) return;
    check_range(card, to, bytes);
    inject(all, card, id, "cuMemsetD8Async");
    card.device.fill(to, std::byte{value}, bytes, id);
  });
}
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace strata::twin
