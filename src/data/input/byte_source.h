// The stored bytes of a file in order: of a regular file or a range of it, of a pipe, or of standard input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"

namespace strata::data {

// Bytes [begin, end) of a file; end = -1: to its end.
struct FileRange {
  int64_t begin = 0;
  int64_t end = -1;
  bool whole() const { return begin == 0 && end < 0; }
};

// Standard input, in place of a path.
inline const Path kStandardInput = "-";

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `size` bytes; fewer only at the end. WorldError where reading fails, DataError for a file that was
  // cut while it was read.
  virtual size_t read(void* out, size_t size) = 0;
  virtual const std::string& name() const = 0;
};

// A missing path: ConfigError. Ranges are of regular files only.
std::unique_ptr<ByteSource> open_source(const Path& path, const FileRange& range = {});

}  // namespace strata::data
