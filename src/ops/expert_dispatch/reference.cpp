#include "ops/expert_dispatch/expert_dispatch.h"

#include "ops/expert_dispatch/way.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::OwnExperts>& at) {
  const graph::Coordinates& rank = graph::coordinates_in(at.in.rank.data);
  for (int64_t i = 0; i < at.in.ids.shape.elements(); ++i)
    at.out.own.put(i, at.attrs.own(static_cast<int32_t>(at.in.ids.index_at(i)), rank));
}

template <>
void compute(const Arrays<ops::RemainingTokens>& at) {
  const int64_t end = at.in.way.index_at(ops::Way::kEnd);
  at.out.next.put(0, end < at.attrs.tokens ? static_cast<double>(end) : 0);
}

template <>
void compute(const Arrays<ops::ExpertRounds>& at) {
  at.out.rounds.give(0, at.in.way.index_at(ops::Way::kBegin) > 0 ? 1.0 : 0.0);
}

}  // namespace strata::reference
