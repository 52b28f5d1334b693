#include "data/input/arrow_storage.h"

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/file.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "data/input/arrow_support.h"

namespace strata::data {
namespace {

struct Place {
  std::shared_ptr<arrow::fs::FileSystem> storage;
  std::string path;
};

[[noreturn]] void fail(const std::string& uri, const arrow::Status& status) {
  throw WorldError("[{}] the storage reported: {}. Check the address, the credentials and the network", uri,
                   status.message());
}

template <typename T>
T value_or_fail(const std::string& uri, arrow::Result<T> result) {
  if (!result.ok()) fail(uri, result.status());
  return std::move(result).ValueUnsafe();
}

Place find_place(const std::string& uri) {
  // Some storage libraries ask to be closed before the process ends.
  static std::once_flag closing;
  std::call_once(closing, [] { std::atexit([] { arrow::fs::EnsureFinalized(); }); });
  Place place;
  auto storage = arrow::fs::FileSystemFromUri(uri, &place.path);
  if (!storage.ok()) {
    if (storage.status().IsIOError()) fail(uri, storage.status());
    throw ConfigError("[{}] cannot be read as an address: {}; expected for example s3://BUCKET/PATH", uri,
                      storage.status().message());
  }
  place.storage = std::move(storage).ValueUnsafe();
  return place;
}

arrow::fs::FileInfo find_file(const std::string& uri, const Place& place) {
  const auto info = value_or_fail(uri, place.storage->GetFileInfo(place.path));
  if (info.type() == arrow::fs::FileType::NotFound)
    throw ConfigError("[{}] is not there; check the address", uri);
  return info;
}

class StoredObject final : public ByteSource {
 public:
  explicit StoredObject(const std::string& uri) : uri_(uri) {
    const Place place = find_place(uri);
    find_file(uri, place);
    stream_ = value_or_fail(uri, place.storage->OpenInputStream(place.path));
  }
  size_t read(void* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const auto got = value_or_fail(
          uri_, stream_->Read(static_cast<int64_t>(size - done), static_cast<char*>(out) + done));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }
  const std::string& name() const override { return uri_; }

 private:
  std::string uri_;
  std::shared_ptr<arrow::io::InputStream> stream_;
};

}  // namespace

std::shared_ptr<arrow::io::RandomAccessFile> open_random_access(const Path& path) {
  if (is_uri(path)) {
    const Place place = find_place(path.string());
    find_file(path.string(), place);
    return value_or_fail(path.string(), place.storage->OpenInputFile(place.path));
  }
  const ReadableFile there(path);  // its errors name the path
  return value_or_fail(path.string(), arrow::io::ReadableFile::Open(path.string()));
}

std::unique_ptr<ByteSource> open_uri(const std::string& uri) {
  return std::make_unique<StoredObject>(uri);
}

std::vector<UriFile> list_uri(const std::string& uri) {
  const Place place = find_place(uri);
  const auto info = find_file(uri, place);
  std::vector<UriFile> files;
  if (info.type() == arrow::fs::FileType::File) return {{uri, info.size()}};
  arrow::fs::FileSelector selector;
  selector.base_dir = place.path;
  selector.recursive = true;
  // The address's prefix before the path also precedes the paths of the files in it.
  const size_t at = uri.rfind(place.path);
  if (at == uri.npos) throw ConfigError("[{}] cannot be listed: name its files", uri);
  for (const auto& file : value_or_fail(uri, place.storage->GetFileInfo(selector))) {
    if (file.type() != arrow::fs::FileType::File) continue;
    std::string found = uri;
    files.push_back({found.replace(at, place.path.size(), file.path()), file.size()});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.uri < b.uri; });
  return files;
}

}  // namespace strata::data
