// Extracts a rank's shard of an array that the rank has completely.
#pragma once

#include <cstdint>
#include <span>

namespace strata::cpu {

// x has the layout [outer, whole, inner bytes], a shard [outer, held, inner bytes].
struct ShardShape {
  int64_t outer = 1;
  int64_t whole = 0, held = 0;
  int64_t inner_bytes = 1;
};

// `count` indices of the whole, from `from` on, which the shard has from `to` on.
struct ShardRange {
  int64_t from = 0, to = 0, count = 0;
};

// y = the ranges of x, and zeros between them. They do not overlap.
void take_shard(void* y, const void* x, const ShardShape& shape, std::span<const ShardRange> ranges);

}  // namespace strata::cpu
