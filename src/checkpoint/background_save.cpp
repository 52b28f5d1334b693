#include "checkpoint/background_save.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/regions.h"

namespace strata::checkpoint {
namespace {

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

// Tracks how much of the state is still to be read.
class BackgroundSave::Gate {
 public:
  void add(int64_t bytes) { unread_ += bytes; }  // before the thread starts
  void read_all_of(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      unread_ -= bytes;
    }
    changed_.notify_all();
  }
  // All reads are done.
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  // Waits until at most `bytes` are unread. Returns whether none are.
  bool wait_until(int64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ || unread_ <= bytes; });
    return open_ || unread_ == 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t unread_ = 0;  // bytes of the tensors that have not been read completely
  bool open_ = false;
};

// The storage of a view, or a copy of it once copy() was called.
class BackgroundSave::GatedStorage final : public ReadableStorage {
 public:
  // The rank's shard is within bytes [first, first + bytes) of the storage and has `held` bytes.
  GatedStorage(std::shared_ptr<const ReadableStorage> storage, int64_t first, int64_t bytes, int64_t held,
               std::shared_ptr<Gate> gate)
      : storage_(std::move(storage)), first_(first), bytes_(bytes), gate_(std::move(gate)), unread_(held) {
    gate_->add(bytes_);
  }

  void read(int64_t offset, void* to, int64_t bytes) const override {
    {
      const std::lock_guard lock(mutex_);
      if (copy_ != nullptr) {
        std::memcpy(to, copy_ + offset - first_, static_cast<size_t>(bytes));
        return;
      }
      storage_->read(offset, to, bytes);
      unread_ -= bytes;
      if (unread_ != 0) return;
    }
    gate_->read_all_of(bytes_);
  }

  // Copies the shard unless it was read completely. Returns the number of bytes copied.
  int64_t copy(std::byte* to) {
    const std::lock_guard lock(mutex_);
    if (unread_ == 0) return 0;
    storage_->read(first_, to, bytes_);
    copy_ = to;
    return bytes_;
  }

 private:
  const std::shared_ptr<const ReadableStorage> storage_;
  const int64_t first_, bytes_;
  const std::shared_ptr<Gate> gate_;
  mutable std::mutex mutex_;
  mutable int64_t unread_;  // bytes of elements; stays above 0 if other ranks' replicas are read instead
  const std::byte* copy_ = nullptr;
};

BackgroundSave::BackgroundSave(FileSystem& files, Path folder, Together ranks, int64_t staging_bytes)
    : files_(files),
      folder_(std::move(folder)),
      ranks_(ranks),
      staging_bytes_(staging_bytes),
      staging_(staging_bytes > 0
                   ? std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(staging_bytes))
                   : nullptr) {}

BackgroundSave::~BackgroundSave() {
  thread_.reset();  // joins: it writes the members after it
}

void BackgroundSave::hold(TensorView& view) {
  const TensorShard shard = shard_of(view, ranks_.rank());
  const int64_t held = shard.elements() * size_of(view.memory_dtype);
  if (held == 0) return;
  const HeldRange& last = shard.rows.back();
  const int64_t row_bytes = shard.pitch * size_of(view.memory_dtype);
  const int64_t first = shard.rows.front().at * row_bytes;
  const int64_t bytes = (last.at + last.end - last.begin) * row_bytes - first;
  storages_.push_back(std::make_shared<GatedStorage>(view.storage, first, bytes, held, gate_));
  view.storage = storages_.back();
}

void BackgroundSave::begin(CheckpointContent content, std::function<void()> durable) {
  STRATA_CHECK(thread_ == nullptr, "the save of step {} begins before the previous one was finished",
               content.step);
  gate_ = std::make_shared<Gate>();
  for (auto* const views : {&content.model.weights, &content.optimizer}) {
    for (TensorView& view : *views) for_each_part(view, [&](TensorView& part) { hold(part); });
  }
  over_ = false;
  waits_ = true;
  thread_ = std::make_unique<OwnedThread>(
      [this, content = std::move(content), durable = std::move(durable),
       gate = gate_](const std::stop_token&) { save(content, durable, *gate); });
}

void BackgroundSave::save(const CheckpointContent& content, const std::function<void()>& durable,
                          Gate& gate) {
  set_compute_threads(1);  // the other threads compute the next step
  const double begin = monotonic_seconds();
  try {
    outcome_.saved = save_checkpoint(files_, folder_, content, ranks_, [&] { gate.open(); });
    if (durable) durable();
    outcome_.seconds = monotonic_seconds() - begin;
    outcome_.cpu_seconds = thread_cpu_seconds();
  } catch (...) {
    error_ = std::current_exception();
  }
  gate.open();
  over_ = true;
}

std::optional<BackgroundSave::Outcome> BackgroundSave::finish() {
  if (thread_ == nullptr) return std::nullopt;
  thread_.reset();  // joins
  waits_ = false;
  storages_.clear();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::exchange(outcome_, {});
}

void BackgroundSave::before_update() {
  if (!waits_) return;
  if (!gate_->wait_until(staging_bytes_)) {
    int64_t used = 0;
    for (const auto& storage : storages_) used += storage->copy(staging_.get() + used);
  }
  waits_ = false;
}

}  // namespace strata::checkpoint
