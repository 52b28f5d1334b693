#include "interop/torch/zip_directory.h"

#include <unzip.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace strata::interop {
namespace {

constexpr size_t kMaxEntryName = 4096;

// The archive as the library's callbacks see it. An exception must not pass through the library, which is C:
// it becomes a short read, and is thrown again afterwards.
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

ZPOS64_T tell_stream(voidpf, voidpf file) {
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
  zlib_filefunc64_def calls{open_stream, read_stream,  nullptr,         tell_stream,
                            seek_stream, close_stream, error_of_stream, &stream};
  const auto require = [&](bool condition, std::string_view what) {
    if (stream.error) std::rethrow_exception(stream.error);
    if (!condition) throw DataError("[{}] is no whole zip archive: {}; was it cut short?", where, what);
  };
  // The name is not used, but a null one is taken for an error.
  const std::unique_ptr<void, int (*)(void*)> archive(unzOpen2_64("", &calls), unzClose);
  require(archive != nullptr, "it has no sound directory");
  std::map<std::string, ZipEntry, std::less<>> entries;
  int status = unzGoToFirstFile(archive.get());
  for (; status == UNZ_OK; status = unzGoToNextFile(archive.get())) {
    unz_file_info64 info{};
    std::string name(kMaxEntryName, '\0');
    require(unzGetCurrentFileInfo64(archive.get(), &info, name.data(), name.size(), nullptr, 0, nullptr, 0) ==
                UNZ_OK,
            "an entry of its directory cannot be read");
    require(info.size_filename < kMaxEntryName, "the name of an entry is too long");
    name.resize(info.size_filename);
    if (info.compression_method != 0 || (info.flag & 1) != 0)
      throw DataError("[{}] '{}' is {}; torch.save stores plain bytes", where, name,
                      info.compression_method != 0 ? "compressed" : "encrypted");
    require(info.compressed_size == info.uncompressed_size, "an entry has two sizes");
    require(unzOpenCurrentFile(archive.get()) == UNZ_OK, "an entry is not where the directory says");
    const uint64_t offset = unzGetCurrentFileZStreamPos64(archive.get());
    unzCloseCurrentFile(archive.get());
    require(offset <= file_bytes && info.uncompressed_size <= file_bytes - offset,
            "an entry reaches beyond its end");
    if (!entries.emplace(name, ZipEntry{offset, info.uncompressed_size}).second)
      throw DataError("[{}] holds '{}' twice", where, name);
  }
  require(status == UNZ_END_OF_LIST_OF_FILE, "its directory breaks off");
  return entries;
}

}  // namespace strata::interop
