#include "kernels/cpu/shard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/parallel.h"

namespace strata::cpu {

void take_shard(void* y, const void* x, const ShardShape& shape, int64_t index) {
  const int64_t whole = std::accumulate(shape.parts.begin(), shape.parts.end(), int64_t{0});
  int64_t begin = 0, taken = 0;
  for (size_t i = 0; i < shape.parts.size(); ++i) {
    const int64_t part = shape.parts[i], share = part / shape.ranks;
    const int64_t number = shape.mirrored && i % 2 == 1 ? shape.ranks - 1 - index : index;
    const auto* from = static_cast<const std::byte*>(x) + (begin + number * share) * shape.inner_bytes;
    auto* to = static_cast<std::byte*>(y) + taken * shape.inner_bytes;
    const int64_t from_stride = whole * shape.inner_bytes, to_stride = from_stride / shape.ranks;
    const int64_t bytes = share * shape.inner_bytes;
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
    begin += part;
    taken += share;
  }
}

}  // namespace strata::cpu
