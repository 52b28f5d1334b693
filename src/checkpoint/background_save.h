// A checkpoint that is saved while training goes on.
//
// A thread of each rank reads the state out of the device piece by piece, exchanges it with the other ranks'
// and writes it, beside the next step's forward and backward, which change nothing of it. Only the update
// must wait, until all has been read; or until what has not been read fits a staging buffer, into which it is
// then copied.
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
  // What became of a save, and what it took.
  struct Outcome {
    SavedCheckpoint saved;
    double seconds = 0;      // from begin() until it was durable and old ones were pruned
    double cpu_seconds = 0;  // of its thread
  };

  // Into FOLDER, usually RUN/checkpoints. `ranks` are a group of all, used for nothing else: collectives of
  // training go on at the same time. Of `staging_bytes`, allocated here, memory is taken when an update first
  // needs them; 0: updates wait.
  BackgroundSave(FileSystem& files, Path folder, Together ranks = {}, int64_t staging_bytes = 0);
  // Waits for the save that runs; finish() tells what came of it.
  ~BackgroundSave();

  // All ranks call begin() and finish() at the same places, and finish() before they begin again: it waits
  // for the save, returns what became of it or throws its error, on all of them alike; nothing where none was
  // begun. What the content's storages hold may be read until before_update() returns. `durable` is called on
  // the save's thread once the checkpoint is whole on disk.
  void begin(CheckpointContent content, std::function<void()> durable = {});
  std::optional<Outcome> finish();

  // Before anything changes what is being saved: returns once it may. Throws nothing of the save's.
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
  bool waits_ = false;  // the next update, for the gate
  std::vector<std::shared_ptr<GatedStorage>> storages_;
  std::unique_ptr<OwnedThread> thread_;
  std::atomic<bool> over_ = false;
  Outcome outcome_;
  std::exception_ptr error_;
};

}  // namespace strata::checkpoint
