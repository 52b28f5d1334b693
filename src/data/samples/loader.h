// Batches of training samples, filled ahead by the loader's thread into a ring of batches that are allocated
// once. The loader's whole state is the number of the next sample: asking for any other sample drops the
// prepared ones and returns the same bytes as a fresh loader would.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <vector>

#include "base/thread.h"
#include "data/samples/sample_source.h"

namespace strata::data {

struct LoaderOptions {
  int64_t max_sequences =
      1;               // of one call; memory is depth * max_sequences * T * 16 bytes, more with an encoder
  int64_t depth = 4;   // batches prepared ahead, at least 2
  int64_t stride = 0;  // from one call's first sample to the next's; 0: the call's sequences
  // Rows of a batch, if it has more than the sequences of one call: the others have no target.
  int64_t rows = 0;
};

// The rows of one call.
struct LoadRequest {
  int64_t first = 0, sequences = 0;
  int64_t stride = 0;  // from its first sample to that of the next call, probably; 0: the options'
  int64_t pieces = 1;  // equal sequences to cut each row into
  bool operator==(const LoadRequest&) const = default;
};

// Fills `rows` rows, at least as many as the request has; the further ones are padding.
void fill_batch(const SampleSource& source, const LoadRequest& request, int64_t rows, HostBatch& batch,
                BatchScratch& scratch);

class Loader {
 public:
  // `source` must outlive the loader.
  Loader(const SampleSource& source, const LoaderOptions& options);
  ~Loader();

  // The batch is valid until the next call. Waits for it if it is not ready yet. Rethrows the error of
  // reading the data (DataError for a bad id); the next call tries again. One thread calls.
  const HostBatch& next(const LoadRequest& request);
  const HostBatch& next(int64_t first_sample, int64_t sequences) {
    return next(LoadRequest{.first = first_sample, .sequences = sequences});
  }

  double wait_seconds() const { return wait_seconds_; }  // of the last call

 private:
  struct Slot {
    HostBatch batch;
    LoadRequest request;
    std::exception_ptr error;
  };
  LoadRequest after(const LoadRequest& request) const;
  static std::vector<Slot> make_slots(const SampleSource& source, const LoaderOptions& options);
  void work(const std::stop_token& stop);

  const SampleSource& source_;
  LoaderOptions options_;
  std::vector<Slot> slots_;
  // Entries [head, head + ready) of the ring are filled, in order of request; the batch that the caller holds
  // is the one before head. Everything below is guarded by mutex_, an entry's content by being in the
  // reader's or the worker's part of the ring.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t head_ = 0, ready_ = 0;
  LoadRequest upcoming_;     // the request that the worker fills next
  uint64_t generation_ = 0;  // incremented when the caller moves elsewhere: the batch in progress is dropped
  bool idle_ = true;         // nothing was asked for yet, or an error stopped the worker
  double wait_seconds_ = 0;
  OwnedThread thread_;
};

}  // namespace strata::data
