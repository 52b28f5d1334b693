// A disk that is full, slow, or ends the process in the middle of a write when a run injects such a fault.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/file.h"

namespace strata::training {

// Passes everything on to another file system until a fault is set. Threads may write while one is set.
class InjectedDisk final : public FileSystem {
 public:
  // `under` must outlive it.
  explicit InjectedDisk(FileSystem& under) : under_(under) {}

  // The file system without faults.
  FileSystem& under() { return under_; }
  // Whether writes, new files and questions for free space fail, all with the same message: it depends on the
  // timing which of them a full disk meets first.
  void set_full(bool full) { full_ = full; }
  // Writes and syncs take this many times as long; 1: no fault.
  void set_factor(double factor) { factor_ = factor; }
  // The next write to a file in `folder` stores half of its bytes; then this process gets `signal`.
  void signal_in_write(const Path& folder, int signal);
  // Sends the signal if no such write has come.
  void signal_now();

  std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep = false) override;
  std::unique_ptr<WritableFile> open_for_update(const Path& path) override;
  void rename(const Path& from, const Path& to) override { under_.rename(from, to); }
  void remove(const Path& path) override { under_.remove(path); }
  void remove_tree(const Path& path) override { under_.remove_tree(path); }
  void create_directories(const Path& path) override;
  void sync_directory(const Path& path) override { under_.sync_directory(path); }
  void truncate(const Path& path, uint64_t size) override { under_.truncate(path, size); }
  uint64_t free_bytes(const Path& folder) override {
    require_space(folder);
    return under_.free_bytes(folder);
  }

 private:
  class File;
  void require_space(const Path& path) const;
  // Runs `work`, then sleeps as long as the fault demands.
  template <typename Work>
  void slowly(const Work& work) const;
  // The signal that a write to this file is to send, once; 0: none.
  int take_signal(const Path& path);

  FileSystem& under_;
  std::atomic<bool> full_ = false;
  std::atomic<double> factor_ = 1;
  std::atomic<int> signal_ = 0;
  std::mutex mutex_;  // guards the folder
  std::string folder_;
};

}  // namespace strata::training
