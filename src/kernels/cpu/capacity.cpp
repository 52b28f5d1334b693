#include "kernels/cpu/capacity.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace strata::cpu {
namespace {

// One group: tokens [first, first + rows).
struct Group {
  const CapacityShape& shape;
  int64_t first;
  int32_t* kept;
  const int32_t* ids;
  const float* weights;

  int64_t begin() const { return first * shape.k; }
  int64_t end() const { return (first + shape.rows) * shape.k; }
};

void keep_first(const Group& group, const int32_t* begins, int32_t* taken) {
  const CapacityShape& shape = group.shape;
  std::fill_n(taken, shape.experts, 0);
  for (int64_t token = group.first; token < group.first + shape.rows; ++token) {
    const bool new_document = begins != nullptr && token > group.first && begins[token] != begins[token - 1];
    if (new_document) std::fill_n(taken, shape.experts, 0);
    if (!shape.has_slots(token)) continue;
    for (int64_t slot = token * shape.k; slot < (token + 1) * shape.k; ++slot) {
      const bool has_capacity = taken[group.ids[slot]]++ < shape.capacity;
      group.kept[slot] = has_capacity || std::isnan(group.weights[slot]) ? group.ids[slot] : -1;
    }
  }
}

// Sorts a group's token-expert pairs by expert, in scratch of rows · k and [experts] entries.
void keep_greatest(const Group& group, int32_t* ends, int32_t* slots) {
  const CapacityShape& shape = group.shape;
  std::fill_n(ends, shape.experts, 0);
  const auto has_capacity = [&](int64_t slot) { return shape.has_slots(slot / shape.k); };
  for (int64_t slot = group.begin(); slot < group.end(); ++slot)
    if (has_capacity(slot)) ++ends[group.ids[slot]];
  for (int64_t e = 1; e < shape.experts; ++e) ends[e] += ends[e - 1];
  const int32_t all = ends[shape.experts - 1];
  for (int64_t slot = group.end(); slot-- > group.begin();)
    if (has_capacity(slot)) slots[--ends[group.ids[slot]]] = static_cast<int32_t>(slot - group.begin());
  for (int64_t e = 0; e < shape.experts; ++e) {
    int32_t* const of_expert = slots + ends[e];
    int32_t* const end = slots + (e + 1 < shape.experts ? ends[e + 1] : all);
    int32_t* const limit = of_expert + std::min<int64_t>(end - of_expert, shape.capacity);
    const auto weight = [&](int32_t slot) { return group.weights[group.begin() + slot]; };
    std::nth_element(of_expert, limit, end, [&](int32_t a, int32_t b) {
      const float x = weight(a), y = weight(b);
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(x);
      return x > y || (x == y && a < b);
    });
    for (const int32_t* slot = of_expert; slot < end; ++slot) {
      const bool stays = slot < limit || std::isnan(weight(*slot));
      group.kept[group.begin() + *slot] = stays ? static_cast<int32_t>(e) : -1;
    }
  }
}

}  // namespace

int64_t limit_experts_scratch_bytes(const CapacityShape& shape) {
  const int64_t of_group = shape.experts + (shape.greatest ? shape.rows * shape.k : 0);
  return shape.tokens / shape.rows * of_group * int64_t{sizeof(int32_t)};
}

void limit_experts(const CapacityShape& shape, int32_t* kept, const int32_t* ids, const float* weights,
                   const int32_t* begins, void* scratch) {
  const int64_t groups = shape.tokens / shape.rows;
  parallel_for(groups, [&](int64_t i) {
    const Group group{shape, i * shape.rows, kept, ids, weights};
    if (shape.idle > 0) std::fill(kept + group.begin(), kept + group.end(), -1);
    auto* const memory = static_cast<int32_t*>(scratch);
    if (!shape.greatest) return keep_first(group, begins, memory + i * shape.experts);
    int32_t* const ends = memory + i * (shape.experts + shape.rows * shape.k);
    keep_greatest(group, ends, ends + shape.experts);
  });
}

void weights_of_kept(int64_t slots, float* kept, const float* weights, const int32_t* ids) {
  for (int64_t i = 0; i < slots; ++i) kept[i] = ids[i] >= 0 || std::isnan(weights[i]) ? weights[i] : 0.0f;
}

}  // namespace strata::cpu
