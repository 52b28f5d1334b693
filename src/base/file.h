// Files. Everything that writes goes through a FileSystem, so that tests can make any call fail, stop short
// or kill the process. Paths are plain strings or std::filesystem::path. All errors are WorldError naming
// path, call and errno, except a path that the user named and that is not there (ConfigError).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

using Path = std::filesystem::path;

// An open file descriptor for writing. close() reports errors; the destructor closes silently.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* bytes, size_t size) = 0;  // writes all, or throws
  virtual void write_at(uint64_t offset, const void* bytes, size_t size) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
  void append(std::string_view text) { append(text.data(), text.size()); }
};

// The seam: what changes the disk. Reading needs no seam.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates or truncates; with keep = true opens an existing file for appending.
  virtual std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep = false) = 0;
  // Creates the file, or keeps its content: for write_at, also by several processes in separate ranges.
  virtual std::unique_ptr<WritableFile> open_for_update(const Path& path) = 0;
  virtual void rename(const Path& from, const Path& to) = 0;
  virtual void remove(const Path& path) = 0;       // a file; absent is fine
  virtual void remove_tree(const Path& path) = 0;  // a folder with all in it; absent is fine
  virtual void create_directories(const Path& path) = 0;
  virtual void sync_directory(const Path& path) = 0;
  virtual void truncate(const Path& path, uint64_t size) = 0;
  virtual uint64_t free_bytes(const Path& folder) = 0;
};

// The machine's own file system; stateless, one for the process.
FileSystem& posix_file_system();

// Writes the whole file so that readers see the old or the new content, never a part: temporary name in the
// same folder, sync, rename, sync of the folder.
void write_file_atomically(FileSystem& files, const Path& path, std::string_view content);

// The whole file as bytes. Missing or unreadable: ConfigError; too large for memory: WorldError.
std::string read_file(const Path& path);

// A read-only memory map of a whole file.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const Path& path);  // missing or unreadable: ConfigError
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file read by position (pread), for files that may be cut while they are read.
class ReadableFile {
 public:
  explicit ReadableFile(const Path& path);
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&&) = delete;
  uint64_t size() const { return size_; }
  void read_at(uint64_t offset, void* out, size_t size) const;  // short file: DataError
  const Path& path() const { return path_; }

 private:
  Path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// An exclusive advisory lock on PATH, held for the object's life and freed by the kernel if the process dies.
class FileLock {
 public:
  // Throws ConfigError naming the holder's process id if another process holds it.
  explicit FileLock(const Path& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  int descriptor_ = -1;
};

// The file that execvp would start for this name, which is searched on PATH unless it contains "/".
std::optional<Path> find_program(const std::string& name);

// Whether a FileLock holds `path`; false if there is no such file. Takes a shared lock for a moment, which a
// FileLock waits for.
bool is_locked(const Path& path);

// Files that match a pattern with * and ? in any part (** is any depth), sorted by path. A plain path yields
// itself, a folder the regular files in it, at any depth. Nothing found: empty.
std::vector<Path> expand_glob(const std::string& pattern);

}  // namespace strata
