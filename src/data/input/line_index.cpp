#include "data/input/line_index.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace strata::data {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 22;
constexpr uint64_t kReadBytes = uint64_t{1} << 17;

// Lines of documents are long: looking for the next end of a line reads many bytes at a time.
int64_t newlines_in(std::string_view bytes) {
  int64_t newlines = 0;
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) ++newlines;
  return newlines;
}

}  // namespace

LineIndex::LineIndex(const Path& path) : file_(path) {}

int64_t LineIndex::count(uint64_t begin, uint64_t end) const {
  std::string bytes;
  int64_t newlines = 0;
  while (begin < end) {
    bytes.resize(std::min(end - begin, kReadBytes));
    file_.read_at(begin, bytes.data(), bytes.size());
    newlines += newlines_in(bytes);
    begin += bytes.size();
  }
  return newlines;
}

int64_t LineIndex::lines_before(int64_t offset) {
  const uint64_t place = std::min(static_cast<uint64_t>(offset), file_.size());
  const uint64_t chunk = place / kChunkBytes;
  int64_t before = 0;
  {
    std::lock_guard lock(mutex_);
    while (before_.size() <= chunk) {
      const uint64_t begin = (before_.size() - 1) * kChunkBytes;
      before_.push_back(before_.back() + count(begin, begin + kChunkBytes));
    }
    before = before_[chunk];
  }
  return before + count(chunk * kChunkBytes, place);
}

}  // namespace strata::data
