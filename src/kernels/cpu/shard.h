// Extracts a rank's shard of an array that the rank has completely.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::cpu {

// x has the layout [outer, parts…, inner bytes]; the parts are concatenated along the split dimension, and
// `ranks` divides each of them.
struct ShardShape {
  int64_t outer = 1;
  std::vector<int64_t> parts;
  int64_t inner_bytes = 1;
  int64_t ranks = 1;
  bool mirrored = false;  // in every second part, shards are numbered from its end
};

// y = shard `index` of every part, concatenated again.
void take_shard(void* y, const void* x, const ShardShape& shape, int64_t index);

}  // namespace strata::cpu
