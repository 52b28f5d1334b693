#include "ops/reference.h"
#include "ops/select/select.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::TakeRow>& at) {
  const int64_t dim = at.in.x.shape[1], row = at.in.index.index_at(0);
  for (int64_t c = 0; c < dim; ++c) at.out.row.put(c, at.in.x.at(row * dim + c));
}

}  // namespace strata::reference
