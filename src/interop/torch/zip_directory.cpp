#include "interop/torch/zip_directory.h"

#include <unzip.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace strata::interop {
namespace {

constexpr size_t kMaxEntryName = 4096;

// The archive for minizip's callbacks. An exception must not pass through C code: the callback reports a
// short read, and the exception is rethrown afterwards.
struct Stream {
  FunctionRef<void(uint64_t, void*, size_t)> read;
  uint64_t size = 0;
  uint64_t at = 0;
  std::exception_ptr error = nullptr;
};

voidpf open_stream(voidpf opaque, const void*, int) {
  return opaque;
}

uLong read_stream(voidpf, voidpf file, void* out, uLong size) {
  auto& stream = *static_cast<Stream*>(file);
  const uint64_t left = stream.at < stream.size ? stream.size - stream.at : 0;
  const auto n = static_cast<size_t>(std::min<uint64_t>(size, left));
  try {
    if (n > 0) stream.read(stream.at, out, n);
  } catch (...) {
    stream.error = std::current_exception();
    return 0;
  }
  stream.at += n;
  return n;
}

ZPOS64_T position_of_stream(voidpf, voidpf file) {
  return static_cast<Stream*>(file)->at;
}

long seek_stream(voidpf, voidpf file, ZPOS64_T offset, int origin) {
  auto& stream = *static_cast<Stream*>(file);
  const uint64_t base = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                        : origin == ZLIB_FILEFUNC_SEEK_CUR ? stream.at
                                                           : stream.size;
  uint64_t to = 0;
  if (__builtin_add_overflow(base, offset, &to) || to > stream.size) return -1;
  stream.at = to;
  return 0;
}

int close_stream(voidpf, voidpf) {
  return 0;
}

int error_of_stream(voidpf, voidpf) {
  return 0;
}

}  // namespace

std::map<std::string, ZipEntry, std::less<>> read_zip_directory(
    uint64_t file_bytes, const std::string& where, FunctionRef<void(uint64_t, void*, size_t)> read) {
  Stream stream{read, file_bytes};
  zlib_filefunc64_def calls{open_stream, read_stream,  nullptr,         position_of_stream,
                            seek_stream, close_stream, error_of_stream, &stream};
  const auto require = [&](bool condition, std::string_view what) {
    if (stream.error) std::rethrow_exception(stream.error);
    if (!condition)
      throw DataError("[{}] is not a complete zip archive: {}. The file may be truncated", where, what);
  };
  // The name is not used, but must not be null.
  const std::unique_ptr<void, int (*)(void*)> archive(unzOpen2_64("", &calls), unzClose);
  require(archive != nullptr, "its directory is invalid");
  std::map<std::string, ZipEntry, std::less<>> entries;
  int status = unzGoToFirstFile(archive.get());
  for (; status == UNZ_OK; status = unzGoToNextFile(archive.get())) {
    unz_file_info64 info{};
    std::string name(kMaxEntryName, '\0');
    require(unzGetCurrentFileInfo64(archive.get(), &info, name.data(), name.size(), nullptr, 0, nullptr, 0) ==
                UNZ_OK,
            "a directory entry cannot be read");
    require(info.size_filename < kMaxEntryName, "the name of an entry is too long");
    name.resize(info.size_filename);
    if (info.compression_method != 0 || (info.flag & 1) != 0)
      throw DataError("[{}] '{}' is {}: expected plain entries, as torch.save writes them", where, name,
                      info.compression_method != 0 ? "compressed" : "encrypted");
    require(info.compressed_size == info.uncompressed_size, "the two sizes of an entry differ");
    require(unzOpenCurrentFile(archive.get()) == UNZ_OK, "an entry is not at the directory's offset");
    const uint64_t offset = unzGetCurrentFileZStreamPos64(archive.get());
    unzCloseCurrentFile(archive.get());
    require(offset <= file_bytes && info.uncompressed_size <= file_bytes - offset,
            "an entry extends beyond the end of the file");
    if (!entries.emplace(name, ZipEntry{offset, info.uncompressed_size}).second)
      throw DataError("[{}] has two entries '{}'", where, name);
  }
  require(status == UNZ_END_OF_LIST_OF_FILE, "its directory is truncated");
  return entries;
}

}  // namespace strata::interop
