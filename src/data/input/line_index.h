// The number of lines before a place in an uncompressed file, for readers that share it in ranges. Counts are
// cached, so that all ranges together cost one pass over the file.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/file.h"

namespace strata::data {

class LineIndex {
 public:
  explicit LineIndex(const Path& path);

  // Newlines in bytes [0, offset). Any thread.
  int64_t lines_before(int64_t offset);

 private:
  int64_t count(uint64_t begin, uint64_t end) const;

  ReadableFile file_;
  std::mutex mutex_;
  std::vector<int64_t> before_{0};  // [k]: newlines before byte k * kChunkBytes
};

}  // namespace strata::data
