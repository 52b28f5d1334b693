#include "kernels/cpu/shard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/parallel.h"

namespace strata::cpu {

void take_shard(void* y, const void* x, const ShardShape& shape, std::span<const ShardRange> ranges) {
  const int64_t from_stride = shape.whole * shape.inner_bytes, to_stride = shape.held * shape.inner_bytes;
  int64_t taken = 0;
  for (const ShardRange& range : ranges) taken += range.count;
  if (taken < shape.held) std::memset(y, 0, static_cast<size_t>(shape.outer * to_stride));
  for (const ShardRange& range : ranges) {
    const auto* from = static_cast<const std::byte*>(x) + range.from * shape.inner_bytes;
    auto* to = static_cast<std::byte*>(y) + range.to * shape.inner_bytes;
    const int64_t bytes = range.count * shape.inner_bytes;
    // If rows are contiguous this would be one long copy: split it so that several threads share it.
    constexpr int64_t kBlock = 1 << 18;
    parallel_ranges(shape.outer * bytes, kBlock, [&](int64_t first, int64_t last) {
      while (first < last) {
        const int64_t row = first / bytes, at = first % bytes;
        const int64_t count = std::min(bytes - at, last - first);
        std::memcpy(to + row * to_stride + at, from + row * from_stride + at, static_cast<size_t>(count));
        first += count;
      }
    });
  }
}

}  // namespace strata::cpu
