#include "twin/pinned.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace strata::twin {

using gpu_tests::Fault;
using gpu_tests::Violation;
using gpu_tests::ViolationDetails;

namespace {

constexpr size_t kPage = 4096;

[[noreturn]] void report(const PinnedBuffer& buffer, const std::string& what) {
  ViolationDetails details;
  details.fault = Fault::kHostMemory;
  throw Violation(fmt::format("[{}] pinned memory at {} ({} bytes) {}", fault_name(details.fault),
                              static_cast<const void*>(buffer.memory), buffer.bytes, what),
                  details);
}

size_t difference(const std::byte* now, const std::byte* before, size_t bytes) {
  return static_cast<size_t>(std::mismatch(now, now + bytes, before).first - now);
}

uint64_t begin_copy(PinnedBuffer& buffer, uint64_t offset, uint64_t bytes, bool writes) {
  buffer.in_flight.push_back({++buffer.copies, offset, bytes, writes});
  return buffer.copies;
}
void end_copy(PinnedBuffer& buffer, uint64_t number) {
  std::erase_if(buffer.in_flight, [&](const PinnedBuffer::Copy& copy) { return copy.number == number; });
}

uint64_t offset_in(const PinnedBuffer& buffer, const void* memory, size_t bytes) {
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(memory) - buffer.memory);
  require(offset + bytes <= buffer.bytes, kInvalidValue);
  return offset;
}

}  // namespace

PinnedBuffer::PinnedBuffer(Card& card_in, size_t bytes_in)
    : card(&card_in),
      memory(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes_in + kPage - 1) / kPage * kPage))),
      bytes(bytes_in),
      region(card_in.device.allocate(bytes_in,
                                     fmt::format("pinned memory at {}", static_cast<void*>(memory)))) {}

PinnedBuffer::~PinnedBuffer() {
  std::free(memory);
}

bool PinnedBuffer::overlaps(uint64_t offset, uint64_t size, bool only_writes) const {
  return std::any_of(in_flight.begin(), in_flight.end(), [&](const Copy& copy) {
    return (copy.writes || !only_writes) && copy.offset < offset + size && offset < copy.offset + copy.bytes;
  });
}

std::shared_ptr<PinnedBuffer> find_pinned(State& all, const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto after = all.pinned.upper_bound(address);
  if (after == all.pinned.begin()) return nullptr;
  const std::shared_ptr<PinnedBuffer>& buffer = std::prev(after)->second;
  return address < std::prev(after)->first + buffer->bytes ? buffer : nullptr;
}

void copy_to_device(State& all, Card& card, cuda::Pointer to, const void* from, size_t bytes,
                    StreamId stream) {
  const auto* first = static_cast<const std::byte*>(from);
  const std::shared_ptr<PinnedBuffer> buffer = find_pinned(all, from);
  if (buffer == nullptr) {
    const auto staged = std::make_shared<const std::vector<std::byte>>(first, first + bytes);
    card.device.call(
        [&card, to, staged] {
          std::byte* place = card.device.access(to, staged->size(), true, "copy to the device");
          std::memcpy(place, staged->data(), staged->size());
        },
        stream, "copy to the device");
    return;
  }
  const uint64_t offset = offset_in(*buffer, from, bytes);
  // While a copy to the same bytes is in flight, they may change.
  std::vector<std::byte> before;
  if (!buffer->overlaps(offset, bytes, true)) before.assign(first, first + bytes);
  const uint64_t number = begin_copy(*buffer, offset, bytes, false);
  card.device.call(
      [&card, to, bytes, buffer, offset, number, before = std::move(before)] {
        const std::byte* source = buffer->memory + offset;
        if (!before.empty() && std::memcmp(source, before.data(), bytes) != 0)
          report(*buffer,
                 fmt::format("changed while a copy from it was in flight: byte {} of {} bytes at +{}",
                             difference(source, before.data(), bytes), bytes, offset));
        card.device.access(buffer->region + offset, bytes, false, "copy to the device");
        std::memcpy(card.device.access(to, bytes, true, "copy to the device"), source, bytes);
        end_copy(*buffer, number);
      },
      stream, "copy from pinned memory");
}

void copy_to_host(State& all, Card& card, void* to, cuda::Pointer from, size_t bytes, StreamId stream) {
  const std::shared_ptr<PinnedBuffer> buffer = find_pinned(all, to);
  if (buffer == nullptr) {
    card.device.copy_out(to, from, bytes, stream);
    card.device.synchronize(stream);
    return;
  }
  const uint64_t offset = offset_in(*buffer, to, bytes);
  const bool fill = !buffer->overlaps(offset, bytes, false);
  if (fill) std::memset(to, std::to_integer<int>(kPendingByte), bytes);
  const uint64_t number = begin_copy(*buffer, offset, bytes, true);
  // As copy_out does: bytes that were never written are a fault where the settings want it.
  const auto staged = std::make_shared<std::vector<std::byte>>(bytes);
  card.device.copy_out(staged->data(), from, bytes, stream);
  card.device.call(
      [&card, bytes, buffer, offset, number, fill, staged] {
        std::byte* place = buffer->memory + offset;
        const auto pending = [](std::byte value) { return value == kPendingByte; };
        if (fill && !std::all_of(place, place + bytes, pending))
          report(*buffer,
                 fmt::format("changed while a copy to it was in flight: byte {} of {} bytes at +{}",
                             std::find_if_not(place, place + bytes, pending) - place, bytes, offset));
        card.device.access(buffer->region + offset, bytes, true, "copy to the host");
        std::memcpy(place, staged->data(), bytes);
        end_copy(*buffer, number);
      },
      stream, "copy to pinned memory");
}

void* allocate_pinned(State& all, Card& card, size_t bytes) {
  auto buffer = std::make_shared<PinnedBuffer>(card, bytes);
  void* const memory = buffer->memory;
  all.pinned.emplace(reinterpret_cast<uintptr_t>(memory), std::move(buffer));
  return memory;
}

void free_pinned(State& all, void* memory) {
  const auto found = all.pinned.find(reinterpret_cast<uintptr_t>(memory));
  require(found != all.pinned.end(), kInvalidValue);
  const std::shared_ptr<PinnedBuffer> buffer = found->second;
  all.pinned.erase(found);
  // Copies in flight keep the buffer until they have run; the twin has no use for them after the report.
  if (!buffer->in_flight.empty())
    report(*buffer, fmt::format("was freed while a copy {} it was in flight",
                                buffer->in_flight.front().writes ? "to" : "from"));
  buffer->card->device.memory().free(buffer->region);
}

}  // namespace strata::twin
