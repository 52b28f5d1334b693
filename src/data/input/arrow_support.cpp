// What a build without Apache Arrow answers; with it arrow_reader.cpp and arrow_storage.cpp do the work.
#include "data/input/arrow_support.h"
#include "base/error.h"

namespace strata::data {

#if STRATA_WITH_ARROW

bool has_arrow() {
  return true;
}

#else

namespace {

[[noreturn]] void refuse(const std::string& path, const char* what) {
  throw ConfigError(
      "[{}] {} needs Apache Arrow, which this build is without; run `make arrow` (it fetches the library and "
      "builds again), or install Arrow's C++ packages and configure again",
      path, what);
}

}  // namespace

bool has_arrow() {
  return false;
}
std::unique_ptr<RecordReader> read_parquet(const Path& path, const std::string&, const RecordOptions&) {
  refuse(path.string(), "reading Parquet");
}
std::unique_ptr<RecordReader> read_arrow(const Path& path, const std::string&, const RecordOptions&) {
  refuse(path.string(), "reading Arrow IPC");
}
std::unique_ptr<ByteSource> open_uri(const std::string& uri) {
  refuse(uri, "object storage");
}
std::vector<UriFile> list_uri(const std::string& uri) {
  refuse(uri, "object storage");
}

#endif

}  // namespace strata::data
