#include "ops/chosen_share/chosen_share.h"

#include <cmath>

#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::ChosenShare>& at) {
  const Shape& shape = at.in.lse.shape;
  double sum = 0;
  for (int64_t row = 0; row < shape[0] * shape[2]; ++row) {
    if (at.in.targets.index_at(row) < 0) continue;
    for (int64_t head = 0; head < shape[1]; ++head) {
      const int64_t i = (row / shape[2] * shape[1] + head) * shape[2] + row % shape[2];
      sum += std::exp(at.in.chosen_lse.at(i) - at.in.lse.at(i));
    }
  }
  at.out.sum.give(0, sum / static_cast<double>(at.attrs.heads));
}

}  // namespace strata::reference
