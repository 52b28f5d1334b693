#include "train/injected_disk.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace strata::training {

class InjectedDisk::File final : public WritableFile {
 public:
  File(InjectedDisk& disk, Path path, std::unique_ptr<WritableFile> file)
      : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}

  void append(const void* bytes, size_t size) override {
    write(size, [&](size_t count) { file_->append(bytes, count); });
  }
  void write_at(uint64_t offset, const void* bytes, size_t size) override {
    write(size, [&](size_t count) { file_->write_at(offset, bytes, count); });
  }
  void sync() override {
    disk_.slowly([&] { file_->sync(); });
  }
  void close() override { file_->close(); }

 private:
  template <typename Write>
  void write(size_t size, const Write& bytes) {
    disk_.require_space(path_);
    if (const int signal = disk_.take_signal(path_); signal != 0) [[unlikely]] {
      bytes(size / 2);
      ::kill(::getpid(), signal);
    }
    disk_.slowly([&] { bytes(size); });
  }

  InjectedDisk& disk_;
  Path path_;
  std::unique_ptr<WritableFile> file_;
};

void InjectedDisk::signal_in_write(const Path& folder, int signal) {
  const std::lock_guard lock(mutex_);
  folder_ = folder.string() + "/";
  signal_ = signal;
}

void InjectedDisk::signal_now() {
  if (const int signal = signal_.exchange(0); signal != 0) ::kill(::getpid(), signal);
}

int InjectedDisk::take_signal(const Path& path) {
  if (signal_ == 0) return 0;
  const std::lock_guard lock(mutex_);
  return path.string().starts_with(folder_) ? signal_.exchange(0) : 0;
}

std::unique_ptr<WritableFile> InjectedDisk::open_for_writing(const Path& path, bool keep) {
  require_space(path);
  return std::make_unique<File>(*this, path, under_.open_for_writing(path, keep));
}

std::unique_ptr<WritableFile> InjectedDisk::open_for_update(const Path& path) {
  require_space(path);
  return std::make_unique<File>(*this, path, under_.open_for_update(path));
}

void InjectedDisk::create_directories(const Path& path) {
  require_space(path);
  under_.create_directories(path);
}

void InjectedDisk::require_space(const Path& path) const {
  if (full_)
    throw WorldError(
        "[{}] cannot write: No space left on device, as debug.inject demands; run the same command again",
        path.string());
}

template <typename Work>
void InjectedDisk::slowly(const Work& work) const {
  const double factor = factor_, begin = monotonic_seconds();
  work();
  if (factor > 1) [[unlikely]]
    std::this_thread::sleep_for(std::chrono::duration<double>((factor - 1) * (monotonic_seconds() - begin)));
}

}  // namespace strata::training
