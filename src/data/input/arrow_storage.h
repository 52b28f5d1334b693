// Files of Arrow's own kind: a local path or a URI of object storage. Only where Arrow is.
#pragma once

#include <arrow/io/interfaces.h>

#include <memory>

#include "base/file.h"

namespace strata::data {

// ConfigError if the object does not exist, WorldError if the storage fails.
std::shared_ptr<arrow::io::RandomAccessFile> open_random_access(const Path& path);

}  // namespace strata::data
