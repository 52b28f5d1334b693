// A FileSystem that counts every call that changes the disk and strikes at one of them: the process ends on
// the spot, or the call throws as a full disk does. Nothing is really synced: a killed process keeps the page cache.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace strata::data {

class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault { kNone, kKill, kFullDisk };
  static constexpr int kKilled = 77;  // the exit code

  FaultyFileSystem(Fault fault, int at) : fault_(fault), at_(at) {}
  int calls() const { return calls_; }

  std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep) override {
    strike();
    return std::make_unique<File>(*this, real_.open_for_writing(path, keep));
  }
  void rename(const Path& from, const Path& to) override { strike(), real_.rename(from, to); }
  void remove(const Path& path) override { strike(), real_.remove(path); }
  void remove_tree(const Path& path) override { strike(), real_.remove_tree(path); }
  void create_directories(const Path& path) override { strike(), real_.create_directories(path); }
  void sync_directory(const Path&) override { strike(); }
  void truncate(const Path& path, uint64_t size) override { strike(), real_.truncate(path, size); }
  uint64_t free_bytes(const Path& folder) override { return real_.free_bytes(folder); }

 private:
  class File final : public WritableFile {
   public:
    File(FaultyFileSystem& owner, std::unique_ptr<WritableFile> real)
        : owner_(owner), real_(std::move(real)) {}
    void append(const void* bytes, size_t size) override {
      if (owner_.strikes_next()) real_->append(bytes, size / 2);  // torn
      owner_.strike();
      real_->append(bytes, size);
    }
    void write_at(uint64_t offset, const void* bytes, size_t size) override {
      owner_.strike();
      real_->write_at(offset, bytes, size);
    }
    void sync() override { owner_.strike(); }
    void close() override { owner_.strike(), real_->close(); }

   private:
    FaultyFileSystem& owner_;
    std::unique_ptr<WritableFile> real_;
  };

  bool strikes_next() const { return fault_ != Fault::kNone && calls_ == at_; }
  void strike() {
    if (calls_++ != at_) return;
    if (fault_ == Fault::kKill) ::_exit(kKilled);
    if (fault_ == Fault::kFullDisk) throw WorldError("[disk] full, as the test wants it");
  }

  FileSystem& real_ = posix_file_system();
  Fault fault_;
  int at_;
  int calls_ = 0;
};

}  // namespace strata::data
