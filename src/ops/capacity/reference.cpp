#include <cmath>

#include "ops/capacity/capacity.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::LimitExperts>& at) {
  const ops::CapacityAttrs& attrs = at.attrs;
  const Array &ids = at.in.ids, &weights = at.in.weights, &begins = at.in.begins;
  const int64_t k = ids.shape[1];
  const bool by_weight = attrs.keep == ops::CapacityAttrs::Keep::kGreatest;
  // Whether a pair precedes another pair of the same expert.
  const auto is_before = [&](int64_t a, int64_t b) {
    if (!by_weight || weights.at(a) == weights.at(b)) return a < b;
    return std::isnan(weights.at(b)) ? std::isnan(weights.at(a)) && a < b : !(weights.at(a) <= weights.at(b));
  };
  const auto share_capacity = [&](int64_t a, int64_t b) {
    if (ids.index_at(a) != ids.index_at(b) || attrs.idle.has(b / k)) return false;
    return by_weight || !begins.present() || begins.index_at(a / k) == begins.index_at(b / k);
  };
  const int64_t of_group = attrs.rows * k;
  for (int64_t slot = 0; slot < ids.shape.elements(); ++slot) {
    int64_t before = 0;
    const int64_t first = slot / of_group * of_group;
    for (int64_t other = first; other < first + of_group; ++other)
      before += other != slot && share_capacity(slot, other) && is_before(other, slot);
    const bool stays = !attrs.idle.has(slot / k) && (before < attrs.capacity || std::isnan(weights.at(slot)));
    at.out.kept.put(slot, stays ? static_cast<double>(ids.index_at(slot)) : -1);
  }
}

template <>
void compute(const Arrays<ops::WeightsOfKept>& at) {
  const Array &weights = at.in.weights, &ids = at.in.ids;
  for (int64_t i = 0; i < ids.shape.elements(); ++i)
    at.out.kept.put(i, ids.index_at(i) >= 0 || std::isnan(weights.at(i)) ? weights.at(i) : 0);
}

}  // namespace strata::reference
