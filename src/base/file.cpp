#include "base/file.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace strata {
namespace {

[[noreturn]] void fail(std::string_view call, const Path& path, int error) {
  const char* hint = error == ENOSPC || error == EDQUOT ? "; free some space or choose another folder" : "";
  throw WorldError("[{}] cannot {}: {}{}", path.string(), call, std::strerror(error), hint);
}

int open_or_throw(const Path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == EIO) fail("open for reading", path, errno);
    throw ConfigError("[{}] cannot open for reading: {}; check the path and its permissions", path.string(),
                      std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode)) {
    ::close(descriptor);
    throw ConfigError("[{}] is a folder; a file was expected here", path.string());
  }
  return descriptor;
}

uint64_t size_of(int descriptor, const Path& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) fail("read the size", path, errno);
  return static_cast<uint64_t>(info.st_size);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~PosixWritableFile() override {
    if (direct_ >= 0) ::close(direct_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void append(const void* bytes, size_t size) override {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t done = ::write(descriptor_, at, size);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("write", path_, errno);
      at += done;
      size -= static_cast<size_t>(done);
    }
  }
  void write_at(uint64_t offset, const void* bytes, size_t size) override {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
      const bool direct = goes_direct(offset, at, size);
      const ssize_t done = ::pwrite(direct ? direct_ : descriptor_, at, size, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && errno == EINVAL && direct) {
        takes_direct_ = false;
        continue;
      }
      if (done < 0) fail("write", path_, errno);
      at += done;
      offset += static_cast<uint64_t>(done);
      size -= static_cast<size_t>(done);
    }
  }
  void sync() override {
    if (::fdatasync(descriptor_) != 0) fail("sync", path_, errno);
  }
  void close() override {
    const int direct = std::exchange(direct_, -1);
    const int descriptor = std::exchange(descriptor_, -1);
    const bool failed = direct >= 0 && ::close(direct) != 0;
    if ((descriptor >= 0 && ::close(descriptor) != 0) || failed) fail("close", path_, errno);
  }

 private:
  // Large writes of whole pages need no copy in the page cache, where the file system takes them so: the copy
  // is what a save costs most.
  bool goes_direct(uint64_t offset, const void* bytes, size_t size) {
    constexpr size_t kLarge = size_t{1} << 20, kPageBytes = 4096;
    if (!takes_direct_ || size < kLarge || offset % kPageBytes != 0 || size % kPageBytes != 0 ||
        reinterpret_cast<uintptr_t>(bytes) % kPageBytes != 0)
      return false;
    if (direct_ < 0) direct_ = ::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
    takes_direct_ = direct_ >= 0;
    return takes_direct_;
  }

  Path path_;
  int descriptor_;
  int direct_ = -1;  // the same file without the page cache
  bool takes_direct_ = true;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep) override {
    return open(path, keep ? O_APPEND : O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_for_update(const Path& path) override { return open(path, 0); }
  void rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to " + to.string(), from, errno);
  }
  void remove(const Path& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
  }
  void remove_tree(const Path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail("remove", path, error.value());
  }
  void create_directories(const Path& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) fail("create the folder", path, error.value());
  }
  void sync_directory(const Path& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail("open the folder", path, errno);
    // Some file systems have no fsync of folders (EINVAL); there is nothing better to do there.
    if (::fsync(descriptor) != 0 && errno != EINVAL) {
      const int error = errno;
      ::close(descriptor);
      fail("sync the folder", path, error);
    }
    ::close(descriptor);
  }
  void truncate(const Path& path, uint64_t size) override {
    if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) fail("truncate", path, errno);
  }
  uint64_t free_bytes(const Path& folder) override {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0) fail("read the free space", folder, errno);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }

 private:
  static std::unique_ptr<WritableFile> open(const Path& path, int how) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);
    if (descriptor < 0) fail("open for writing", path, errno);
    return std::make_unique<PosixWritableFile>(path, descriptor);
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem instance;
  return instance;
}

void write_file_atomically(FileSystem& files, const Path& path, std::string_view content) {
  std::error_code error;
  if (std::filesystem::is_other(
          std::filesystem::status(path, error))) {  // a device or a pipe: nothing to replace
    auto file = files.open_for_writing(path);
    file->append(content);
    file->close();
    return;
  }
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  Path temporary = path;
  temporary += ".tmp-" + std::to_string(::getpid());
  auto file = files.open_for_writing(temporary);
  try {
    file->append(content);
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  files.sync_directory(folder);
}

std::string read_file(const Path& path) {
  // Opened only once: a pipe is empty the second time. Pipes, and files of /proc, report size 0 here.
  const int descriptor = open_or_throw(path);
  const struct Closing {
    int descriptor;
    ~Closing() { ::close(descriptor); }
  } closing{descriptor};
  const uint64_t size = size_of(descriptor, path);
  constexpr size_t kChunk = 65536;
  std::string content;
  size_t done = 0;
  for (;;) {
    content.resize(std::max<size_t>(size, done + (done < size ? 0 : kChunk)));
    const ssize_t got = ::read(descriptor, content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  if (done < size) {
    throw DataError("[{}] ends at byte {} where {} more bytes were expected; the file was cut short",
                    path.string(), done, size - done);
  }
  content.resize(done);
  return content;
}

MappedFile::MappedFile(const Path& path) {
  const int descriptor = open_or_throw(path);
  size_ = size_of(descriptor, path);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) {
      const int error = errno;
      ::close(descriptor);
      fail("map", path, error);
    }
    data_ = static_cast<const std::byte*>(mapped);
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

ReadableFile::ReadableFile(const Path& path)
    : path_(path), descriptor_(open_or_throw(path)), size_(size_of(descriptor_, path)) {}

ReadableFile::~ReadableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

void ReadableFile::read_at(uint64_t offset, void* out, size_t size) const {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    if (got == 0) {
      throw DataError("[{}] ends at byte {} where {} more bytes were expected; the file was cut short",
                      path_.string(), offset, size);
    }
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

namespace {

// Waits a moment for is_locked() of another process, but not for a run.
bool lock_soon(int descriptor) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    ::usleep(2000);
  }
  return false;
}

}  // namespace

bool is_locked(const Path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

FileLock::FileLock(const Path& path) {
  // Anyone who may write into the folder could place a link there to a file of ours, which would be emptied.
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0 && errno == ELOOP) {
    throw ConfigError("[{}] is a symbolic link, expected a lock file of ours; remove it", path.string());
  }
  if (descriptor_ < 0) fail("open the lock file", path, errno);
  if (!lock_soon(descriptor_)) {
    char holder[32] = {};
    const ssize_t got = ::pread(descriptor_, holder, sizeof holder - 1, 0);
    ::close(descriptor_);
    descriptor_ = -1;
    std::string who = got > 0 ? " (process " + std::string(holder, strcspn(holder, "\n")) + ")" : "";
    throw ConfigError(
        "[{}] another run{} is using this folder; wait for it, stop it, or choose another run.folder",
        path.parent_path().string(), who);
  }
  const std::string me = std::to_string(::getpid()) + "\n";
  // The number is a courtesy to the next who asks; the lock holds without it.
  if (::ftruncate(descriptor_, 0) == 0) (void)!::pwrite(descriptor_, me.data(), me.size(), 0);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

std::optional<Path> find_program(const std::string& name) {
  const auto runs = [](const Path& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? std::optional<Path>(name) : std::nullopt;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');)
    if (const Path found = Path(folder.empty() ? "." : folder) / name; runs(found)) return found;
  return std::nullopt;
}

namespace {

// Whether a link in a folder is to something outside of it, which was not meant when the folder was named.
bool leads_out(const Path& link, const Path& folder) {
  std::error_code error;
  const Path target = std::filesystem::canonical(link, error);
  const Path way = target.lexically_relative(std::filesystem::canonical(folder, error));
  return error || way.empty() || *way.begin() == "..";
}

void add_files_below(const Path& folder, std::vector<Path>& found) {
  std::error_code error;
  for (auto it = std::filesystem::recursive_directory_iterator(folder, error);
       !error && it != std::filesystem::end(it); it.increment(error)) {
    if (it->is_regular_file(error) && !(it->is_symlink(error) && leads_out(it->path(), folder)))
      found.push_back(it->path());
  }
}

bool has_wildcard(const std::string& part) {
  return part.find_first_of("*?[") != std::string::npos;
}

void expand_parts(const Path& base, const std::vector<std::string>& parts, size_t next,
                  std::vector<Path>& found) {
  std::error_code error;
  if (next == parts.size()) {
    if (std::filesystem::is_directory(base, error)) {
      add_files_below(base, found);
    } else if (std::filesystem::exists(base, error)) {
      found.push_back(base);
    }
    return;
  }
  const std::string& part = parts[next];
  if (!has_wildcard(part)) {
    expand_parts(base / part, parts, next + 1, found);
    return;
  }
  if (part == "**") expand_parts(base, parts, next + 1, found);
  const Path folder = base.empty() ? Path(".") : base;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const Path below = base.empty() ? Path(name) : base / name;
    if (part == "**") {
      if (entry.is_directory(error) && !entry.is_symlink(error)) expand_parts(below, parts, next, found);
    } else if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      expand_parts(below, parts, next + 1, found);
    }
  }
}

}  // namespace

std::vector<Path> expand_glob(const std::string& pattern) {
  std::vector<Path> found;
  std::error_code error;
  if (std::filesystem::exists(pattern, error)) {  // a name may hold a bracket
    expand_parts(Path(pattern), {}, 0, found);
  } else {
    const Path path(pattern);
    std::vector<std::string> parts;
    for (const auto& part : path.relative_path()) parts.push_back(part.string());
    expand_parts(path.root_path(), parts, 0, found);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace strata
