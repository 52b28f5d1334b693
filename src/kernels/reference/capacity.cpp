#include "ops/capacity.h"

#include <cmath>

#include "kernels/reference/call.h"

namespace strata::reference {
namespace {

// (ids, weights, begins?) → kept
void limit_experts(const Call& call) {
  const auto& attrs = call.attrs.as<ops::CapacityAttrs>();
  const Array &ids = call.in[0], &weights = call.in[1], &begins = call.in[2], &kept = call.out[0];
  const int64_t k = ids.shape[1];
  const bool by_weight = attrs.keep == ops::CapacityAttrs::Keep::kGreatest;
  // Whether a slot takes its expert's room before another one of the same expert.
  const auto is_before = [&](int64_t a, int64_t b) {
    if (!by_weight || weights.at(a) == weights.at(b)) return a < b;
    return std::isnan(weights.at(b)) ? std::isnan(weights.at(a)) && a < b : !(weights.at(a) <= weights.at(b));
  };
  const auto share_room = [&](int64_t a, int64_t b) {
    if (ids.index_at(a) != ids.index_at(b) || attrs.idle.has(b / k)) return false;
    return by_weight || !begins.present() || begins.index_at(a / k) == begins.index_at(b / k);
  };
  const int64_t of_group = attrs.rows * k;
  for (int64_t slot = 0; slot < ids.shape.elements(); ++slot) {
    int64_t before = 0;
    const int64_t first = slot / of_group * of_group;
    for (int64_t other = first; other < first + of_group; ++other)
      before += other != slot && share_room(slot, other) && is_before(other, slot);
    const bool stays = !attrs.idle.has(slot / k) && (before < attrs.capacity || std::isnan(weights.at(slot)));
    kept.put(slot, stays ? static_cast<double>(ids.index_at(slot)) : -1);
  }
}

// (weights, ids) → kept
void weights_of_kept(const Call& call) {
  const Array &weights = call.in[0], &ids = call.in[1];
  for (int64_t i = 0; i < ids.shape.elements(); ++i)
    call.out[0].put(i, ids.index_at(i) >= 0 || std::isnan(weights.at(i)) ? weights.at(i) : 0);
}

}  // namespace

std::span<const Row> capacity_kernels() {
  static const Row kRows[] = {
      {&ops::kLimitExperts, limit_experts},
      {&ops::kWeightsOfKept, weights_of_kept},
  };
  return kRows;
}

}  // namespace strata::reference
