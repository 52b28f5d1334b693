// Saves a checkpoint while training continues.
//
// A thread of each rank reads the state from the device block by block, exchanges it with the other ranks and
// writes it during the next step's forward and backward passes, which do not change it. Only the update must
// wait until all of the state has been read, or until the unread rest fits the staging buffer, into which it
// is then copied.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread.h"
#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {

class BackgroundSave {
 public:
  // The result and the cost of a save.
  struct Outcome {
    SavedCheckpoint saved;
    double seconds = 0;      // from begin() until it was durable and old ones were pruned
    double cpu_seconds = 0;  // of its thread
  };

  // Saves into FOLDER, usually RUN/checkpoints. `ranks` is a group of all ranks that nothing else uses,
  // because training runs its collectives at the same time. The staging buffer of `staging_bytes` is
  // allocated here, but its pages are first touched when an update needs them; 0: updates wait.
  BackgroundSave(FileSystem& files, Path folder, Together ranks = {}, int64_t staging_bytes = 0);
  // Waits for the save in flight and discards its outcome; call finish() to get it.
  ~BackgroundSave();

  // All ranks call begin() and finish() at the same points, and finish() before the next begin(). finish()
  // waits for the save and returns its outcome or throws its error, the same on all ranks; it returns nothing
  // if no save was started. The content's storages may be read until before_update() returns. `durable` is
  // called on the save's thread once the checkpoint is complete on disk.
  void begin(CheckpointContent content, std::function<void()> durable = {});
  std::optional<Outcome> finish();

  // Must be called before the state changes; returns once it may change. Does not throw the save's errors.
  void before_update();

  // Whether finish() would wait.
  bool running() const { return thread_ != nullptr && !over_; }

 private:
  class Gate;
  class GatedStorage;
  void hold(TensorView& view);
  void save(const CheckpointContent& content, const std::function<void()>& durable, Gate& gate);

  FileSystem& files_;
  const Path folder_;
  const Together ranks_;
  const int64_t staging_bytes_;
  std::unique_ptr<std::byte[]> staging_;
  std::shared_ptr<Gate> gate_;
  bool waits_ = false;  // the next update must wait for the gate
  std::vector<std::shared_ptr<GatedStorage>> storages_;
  std::unique_ptr<OwnedThread> thread_;
  std::atomic<bool> over_ = false;
  Outcome outcome_;
  std::exception_ptr error_;
};

}  // namespace strata::checkpoint
