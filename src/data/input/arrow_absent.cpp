// Compiled in place of arrow_reader.cpp and arrow_storage.cpp where Apache Arrow was not found.
#include "base/error.h"
#include "data/input/arrow_support.h"

namespace strata::data {
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

}  // namespace strata::data
