#include "ops/reference.h"
#include "ops/take_part/take_part.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::TakePart>& at) {
  const int64_t numbers = at.out.part.shape[0];
  const int64_t first = place_in(at.in.rank, at.attrs.axis, at.attrs.ranks) * numbers;
  for (int64_t i = 0; i < numbers; ++i) at.out.part.put(i, at.in.x.at(first + i));
}

template <>
void compute(const Arrays<ops::TakePartGrad>& at) {
  const int64_t numbers = at.in.dy.shape[0];
  const int64_t first = place_in(at.in.rank, at.attrs.axis, at.attrs.ranks) * numbers;
  for (int64_t i = 0; i < at.attrs.ranks * numbers; ++i)
    at.out.dx.give(i, i >= first && i < first + numbers ? at.in.dy.at(i - first) : 0);
}

}  // namespace strata::reference
