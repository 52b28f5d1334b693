#include "device/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace strata::device {

UploadRing::Used UploadRing::take(int64_t bytes) {
  if (next_ + bytes > kBytes) next_ = 0;
  // Copies end in the order in which they began: the newest one in the range is the last.
  const auto newest = std::find_if(used_.rbegin(), used_.rend(), [&](const Used& used) {
    return used.begin < next_ + bytes && next_ < used.end;
  });
  if (newest != used_.rend()) {
    queue_.check(card_.driver->synchronize_event(newest->copied->get()), "cuEventSynchronize");
    const auto end = newest.base();
    for (auto used = used_.begin(); used != end; ++used) idle_.push_back(std::move(used->copied));
    used_.erase(used_.begin(), end);
  }
  Used taken{next_, next_ + bytes, nullptr};
  if (idle_.empty()) {
    taken.copied = std::make_unique<cuda::OwnEvent>(card_);
  } else {
    taken.copied = std::move(idle_.back());
    idle_.pop_back();
  }
  next_ += bytes;
  return taken;
}

void UploadRing::upload(std::byte* to, const void* from, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  card_.use();
  if (memory_ == nullptr) memory_ = std::make_unique<cuda::PinnedMemory>(card_, kBytes);
  const auto* source = static_cast<const std::byte*>(from);
  for (int64_t done = 0; done < bytes; done += kPiece) {
    const int64_t size = std::min(kPiece, bytes - done);
    Used piece = take(size);
    std::byte* const pinned = memory_->data() + piece.begin;
    std::memcpy(pinned, source + done, static_cast<size_t>(size));
    queue_.check(card_.driver->copy_to_device_async(reinterpret_cast<cuda::Pointer>(to + done), pinned,
                                                    static_cast<size_t>(size), queue_.stream()),
                 "cuMemcpyHtoDAsync");
    queue_.check(card_.driver->record_event(piece.copied->get(), queue_.stream()), "cuEventRecord");
    used_.push_back(std::move(piece));
  }
}

Readers::Reader::Reader(const cuda::Card& card)
    : begin(card),
      pieces(card, 2 * kPiece),
      arrived{cuda::OwnEvent(card), cuda::OwnEvent(card)},
      stream(card) {}

std::unique_ptr<Readers::Reader> Readers::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Reader>(card_);
  std::unique_ptr<Reader> reader = std::move(idle_.back());
  idle_.pop_back();
  return reader;
}

void Readers::download(void* to, const std::byte* from, int64_t bytes, cuda::Event after) {
  const cuda::Driver& driver = *card_.driver;
  card_.use();
  std::unique_ptr<Reader> reader = take();
  const cuda::Stream stream = reader->stream.get();
  if (after == nullptr) {
    queue_.check(driver.record_event(reader->begin.get(), queue_.stream()), "cuEventRecord");
    after = reader->begin.get();
  }
  queue_.check(driver.wait_event(stream, after, 0), "cuStreamWaitEvent");
  auto* target = static_cast<std::byte*>(to);
  // While one part goes from pinned memory to its target, the next one arrives.
  const auto start = [&](int64_t piece) {
    const int64_t at = piece * kPiece;
    if (at >= bytes) return;
    const auto slot = static_cast<size_t>(piece % 2);
    queue_.check(driver.copy_to_host_async(reader->pieces.data() + static_cast<int64_t>(slot) * kPiece,
                                           reinterpret_cast<cuda::Pointer>(from + at),
                                           static_cast<size_t>(std::min(kPiece, bytes - at)), stream),
                 "cuMemcpyDtoHAsync");
    queue_.check(driver.record_event(reader->arrived[slot].get(), stream), "cuEventRecord");
  };
  start(0);
  for (int64_t piece = 0; piece * kPiece < bytes; ++piece) {
    start(piece + 1);
    const auto slot = static_cast<size_t>(piece % 2);
    queue_.check(driver.synchronize_event(reader->arrived[slot].get()), "cuEventSynchronize");
    const int64_t at = piece * kPiece;
    std::memcpy(target + at, reader->pieces.data() + static_cast<int64_t>(slot) * kPiece,
                static_cast<size_t>(std::min(kPiece, bytes - at)));
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(reader));
}

}  // namespace strata::device
