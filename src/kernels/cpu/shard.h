// A rank's part of an array that it has whole.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::cpu {

// x lies as [outer, parts…, inner bytes], where the parts stand side by side along the dimension that is
// split and `ranks` divides each of them.
struct ShardShape {
  int64_t outer = 1;
  std::vector<int64_t> parts;
  int64_t inner_bytes = 1;
  int64_t ranks = 1;
  bool mirrored = false;  // of every second part shares are counted from its end
};

// y = share `index` of every part, the parts side by side again.
void take_shard(void* y, const void* x, const ShardShape& shape, int64_t index);

}  // namespace strata::cpu
