#include "data/input/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "data/input/arrow_support.h"

namespace strata::data {
namespace {

class FilePart final : public ByteSource {
 public:
  FilePart(ReadableFile file, const FileRange& range)
      : file_(std::move(file)),
        name_(file_.path().string()),
        offset_(static_cast<uint64_t>(range.begin)),
        end_(range.end < 0 ? file_.size() : std::min(file_.size(), static_cast<uint64_t>(range.end))) {}
  size_t read(void* out, size_t size) override {
    const auto count = static_cast<size_t>(std::min<uint64_t>(size, end_ > offset_ ? end_ - offset_ : 0));
    file_.read_at(offset_, out, count);
    offset_ += count;
    return count;
  }
  const std::string& name() const override { return name_; }

 private:
  ReadableFile file_;
  std::string name_;
  uint64_t offset_;
  uint64_t end_;
};

// What cannot be read by position.
class Pipe final : public ByteSource {
 public:
  Pipe(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}
  ~Pipe() override { ::close(descriptor_); }
  size_t read(void* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const ssize_t got = ::read(descriptor_, static_cast<char*>(out) + done, size - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw WorldError("[{}] cannot read: {}", name_, std::strerror(errno));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }
  const std::string& name() const override { return name_; }

 private:
  int descriptor_;
  std::string name_;
};

}  // namespace

bool is_uri(const Path& path) {
  const std::string& name = path.native();
  const size_t colon = name.find("://");
  return colon != name.npos && colon > 1 && name.find('/') > colon;
}

std::unique_ptr<ByteSource> open_source(const Path& path, const FileRange& range) {
  if (path == kStandardInput) {
    const int descriptor = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (descriptor < 0)
      throw ConfigError("[standard input] cannot be read: {}; is it open?", std::strerror(errno));
    return std::make_unique<Pipe>(descriptor, "standard input");
  }
  if (is_uri(path)) return open_uri(path.string());
  // A pipe is opened once: its writer may be gone at a second time.
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type != std::filesystem::file_type::fifo && type != std::filesystem::file_type::character)
    return std::make_unique<FilePart>(ReadableFile(path), range);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    throw ConfigError("[{}] cannot open for reading: {}", path.string(), std::strerror(errno));
  return std::make_unique<Pipe>(descriptor, path.string());
}

}  // namespace strata::data
