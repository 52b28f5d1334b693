#include "ops/expert_parallel/expert_parallel.h"

#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::OwnExperts>& at) {
  const graph::Coordinates& rank = graph::coordinates_in(at.in.rank.data);
  for (int64_t i = 0; i < at.in.ids.shape.elements(); ++i)
    at.out.own.put(i, at.attrs.own(static_cast<int32_t>(at.in.ids.index_at(i)), rank));
}

template <>
void compute(const Arrays<ops::ExpertRounds>& at) {
  double sum = 0;
  for (int64_t i = 1; i < at.in.end.shape[0]; i += 2) sum += static_cast<double>(at.in.end.index_at(i));
  at.out.rounds.give(0, sum);
}

}  // namespace strata::reference
