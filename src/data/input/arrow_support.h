// The features of Apache Arrow, if this build has it: Parquet, Arrow IPC and object storage, in arrow_*.cpp.
// A build without it refuses and reports what to do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/input/byte_source.h"
#include "data/input/record_reader.h"

namespace strata::data {

bool has_arrow();

std::unique_ptr<RecordReader> read_parquet(const Path& path, const std::string& name,
                                           const RecordOptions& options);
// The file format (also Feather 2) and the stream format, detected from the content.
std::unique_ptr<RecordReader> read_arrow(const Path& path, const std::string& name,
                                         const RecordOptions& options);

// Whether a path is of object storage: s3://, gs://, abfs://, hdfs://, file://.
bool is_uri(const Path& path);
std::unique_ptr<ByteSource> open_uri(const std::string& uri);
struct UriFile {
  std::string uri;
  int64_t size = 0;
};
// The object itself, or all below it, sorted. ConfigError if nothing is found.
std::vector<UriFile> list_uri(const std::string& uri);

}  // namespace strata::data
