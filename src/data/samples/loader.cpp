#include "data/samples/loader.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "data/samples/rows.h"

namespace strata::data {

void fill_batch(const SampleSource& source, const LoadRequest& request, int64_t rows, HostBatch& batch,
                BatchScratch& scratch) {
  batch.resize(source.shape(), rows);
  batch.first_sample = request.first;
  batch.sequences = request.sequences;
  batch.counted_targets = source.fill(request.first, request.sequences, batch.view(), scratch);
  for (int64_t row = 0; row < rows; ++row)
    batch[Column::kSamples][static_cast<size_t>(row)] = static_cast<int32_t>(request.first + row);
  for (int64_t row = request.sequences; row < rows; ++row)
    fill_padding(source.shape(), 0, 0, row_of(batch.view(), source.shape(), row));
  batch.cut(source.shape(), request.pieces);
}

Loader::Loader(const SampleSource& source, const LoaderOptions& options)
    : source_(source),
      options_(options),
      slots_(make_slots(source, options)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

// The thread stops at the end of the batch it is filling; its owner joins it.
Loader::~Loader() = default;

std::vector<Loader::Slot> Loader::make_slots(const SampleSource& source, const LoaderOptions& options) {
  STRATA_CHECK(options.max_sequences >= 1 && options.depth >= 2 && options.stride >= 0,
               "loader of {} sequences, depth {}, stride {}", options.max_sequences, options.depth,
               options.stride);
  // One more than the depth: the caller holds a batch while the others are filled.
  std::vector<Slot> slots(static_cast<size_t>(options.depth) + 1);
  // Touched here, not in the first step.
  for (Slot& slot : slots) slot.batch.resize(source.shape(), std::max(options.rows, options.max_sequences));
  return slots;
}

const HostBatch& Loader::next(const LoadRequest& request) {
  STRATA_CHECK(request.first >= 0 && request.sequences >= 0 && request.sequences <= options_.max_sequences,
               "samples {} + {}, at most {} a call", request.first, request.sequences,
               options_.max_sequences);
  const double started = monotonic_seconds();
  std::unique_lock lock(mutex_);
  const LoadRequest& coming = ready_ > 0 ? slots_[static_cast<size_t>(head_)].request : upcoming_;
  if ((idle_ && ready_ == 0) || !(coming == request)) {
    ++generation_;
    ready_ = 0;
    upcoming_ = request;
    idle_ = false;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return ready_ > 0; });
  Slot& slot = slots_[static_cast<size_t>(head_)];
  head_ = (head_ + 1) % static_cast<int64_t>(slots_.size());
  --ready_;
  changed_.notify_all();
  wait_seconds_ = monotonic_seconds() - started;
  if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
  return slot.batch;
}

LoadRequest Loader::after(const LoadRequest& request) const {
  const int64_t stride = request.stride > 0    ? request.stride
                         : options_.stride > 0 ? options_.stride
                                               : request.sequences;
  LoadRequest next = request;
  next.first += stride;
  return next;
}

void Loader::work(const std::stop_token& stop) {
  BatchScratch scratch;
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !idle_ && ready_ < options_.depth; })) {
    const LoadRequest request = upcoming_;
    const uint64_t generation = generation_;
    Slot& slot = slots_[static_cast<size_t>((head_ + ready_) % static_cast<int64_t>(slots_.size()))];
    lock.unlock();
    slot.request = request;
    slot.error = nullptr;
    try {
      fill_batch(source_, request, std::max(options_.rows, request.sequences), slot.batch, scratch);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    if (stop.stop_requested()) return;
    if (generation != generation_) continue;
    ++ready_;
    upcoming_ = after(request);
    if (slot.error) idle_ = true;
    changed_.notify_all();
  }
}

}  // namespace strata::data
