// A file system whose n-th call goes wrong: for tests of everything that writes. Calls are counted over the
// file system and the files that it opens, from 1; a run without a fault tells how many there are.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace strata {

enum class FaultKind {
  kNone,
  kError,       // the call fails without any effect; later calls work again
  kDiskFull,    // a write stores half of its bytes and fails; from then on everything that needs space fails
  kShortWrite,  // a write stores half of its bytes and says nothing
  kKillBefore,  // the process ends before the call; a write stores half of its bytes first
  kKillAfter,   // the process ends after the call
};

struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  int64_t at = 0;            // the call
  bool really_sync = false;  // a killed process keeps the page cache: tests need no real sync
  uint64_t free_bytes = uint64_t{1} << 40;
};

class FaultyFileSystem final : public FileSystem {
 public:
  static constexpr int kKilled = 99;  // exit status of a process that a fault ended

  explicit FaultyFileSystem(FaultPlan plan = {}) : plan_(plan) {}
  int64_t calls() const { return calls_; }

  std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep = false) override {
    return call(true, [&]() -> std::unique_ptr<WritableFile> {
      return std::make_unique<File>(*this, posix_file_system().open_for_writing(path, keep));
    });
  }
  void rename(const Path& from, const Path& to) override {
    call(false, [&] { posix_file_system().rename(from, to); });
  }
  void remove(const Path& path) override {
    call(false, [&] { posix_file_system().remove(path); });
  }
  void remove_tree(const Path& path) override {
    call(false, [&] { posix_file_system().remove_tree(path); });
  }
  void create_directories(const Path& path) override {
    call(true, [&] { posix_file_system().create_directories(path); });
  }
  void sync_directory(const Path& path) override {
    call(false, [&] {
      if (plan_.really_sync) posix_file_system().sync_directory(path);
    });
  }
  void truncate(const Path& path, uint64_t size) override {
    call(false, [&] { posix_file_system().truncate(path, size); });
  }
  uint64_t free_bytes(const Path&) override { return plan_.free_bytes; }

 private:
  class File final : public WritableFile {
   public:
    File(FaultyFileSystem& owner, std::unique_ptr<WritableFile> file)
        : owner_(owner), file_(std::move(file)) {}
    void append(const void* bytes, size_t size) override {
      owner_.write(size, [&](size_t n) { file_->append(bytes, n); });
    }
    void write_at(uint64_t offset, const void* bytes, size_t size) override {
      owner_.write(size, [&](size_t n) { file_->write_at(offset, bytes, n); });
    }
    void sync() override {
      owner_.call(false, [&] {
        if (owner_.plan_.really_sync) file_->sync();
      });
    }
    void close() override {
      owner_.call(false, [&] { file_->close(); });
    }

   private:
    FaultyFileSystem& owner_;
    std::unique_ptr<WritableFile> file_;
  };

  [[noreturn]] static void fail() {
    throw WorldError(
        "[test] cannot write: No space left on device; free some space or choose another folder");
  }

  template <typename Action>
  std::invoke_result_t<Action&> call(bool needs_space, Action action) {
    const bool now = ++calls_ == plan_.at;
    if (now && plan_.kind == FaultKind::kError) fail();
    if (needs_space && plan_.kind == FaultKind::kDiskFull && calls_ >= plan_.at) fail();
    if (now && plan_.kind == FaultKind::kKillBefore) ::_exit(kKilled);
    struct KillAfter {
      bool armed;
      ~KillAfter() {
        if (armed) ::_exit(kKilled);
      }
    } kill{now && plan_.kind == FaultKind::kKillAfter};
    return action();
  }

  template <typename Write>
  void write(size_t size, Write action) {
    const bool now = calls_ + 1 == plan_.at;
    const bool halves = plan_.kind == FaultKind::kDiskFull || plan_.kind == FaultKind::kShortWrite ||
                        plan_.kind == FaultKind::kKillBefore;
    if (now && halves) action(size / 2);
    if (now && plan_.kind == FaultKind::kShortWrite) {
      ++calls_;
      return;
    }
    call(true, [&] { action(size); });
  }

  FaultPlan plan_;
  std::atomic<int64_t> calls_ = 0;  // several threads may write
};

}  // namespace strata
