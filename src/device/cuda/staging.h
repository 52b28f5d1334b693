// Copies between the host's memory and a GPU's through pinned memory, so that the host waits neither for a copy to the GPU
// nor, for one from it, for work that is later than a certain point.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/queue.h"

namespace strata::device {

// A ring of pinned bytes, through which uploads reach the queue. Several threads may call it.
class UploadRing {
 public:
  UploadRing(const cuda::Card& card, const CudaQueue& queue) : card_(card), queue_(queue) {}

  // Copied when this returns; on the GPU after all work that was started before.
  void upload(std::byte* to, const void* from, int64_t bytes);

 private:
  static constexpr int64_t kBytes = 32 << 20;    // the tokens of many micro-batches
  static constexpr int64_t kPiece = kBytes / 4;  // a large upload is cut, so that both copies overlap

  // A range in use, until the queue has come to its event.
  struct Used {
    int64_t begin = 0, end = 0;
    std::unique_ptr<cuda::OwnEvent> copied;
  };
  // Waits until a range of this size is free.
  Used take(int64_t bytes);

  const cuda::Card& card_;
  const CudaQueue& queue_;
  std::mutex mutex_;
  std::unique_ptr<cuda::PinnedMemory> memory_;         // made by the first upload
  std::deque<Used> used_;                              // oldest first
  std::vector<std::unique_ptr<cuda::OwnEvent>> idle_;  // events to use again
  int64_t next_ = 0;
};

// Reads a GPU's memory on separate streams, one for each thread that reads. Several threads may call it.
class Readers {
 public:
  Readers(const cuda::Card& card, const CudaQueue& queue) : card_(card), queue_(queue) {}

  // After the event; nullptr: after all work that was started.
  void download(void* to, const std::byte* from, int64_t bytes, cuda::Event after);

 private:
  static constexpr int64_t kPiece = 4 << 20;
  struct Reader {
    explicit Reader(const cuda::Card& card);
    cuda::OwnEvent begin;
    cuda::PinnedMemory pieces;  // two
    cuda::OwnEvent arrived[2];
    cuda::OwnStream stream;  // ends first: after an error, copies to pinned memory may be in flight
  };
  std::unique_ptr<Reader> take();

  const cuda::Card& card_;
  const CudaQueue& queue_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Reader>> idle_;
};

}  // namespace strata::device
