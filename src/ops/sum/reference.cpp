#include "ops/reference.h"
#include "graph/sum.h"

namespace strata::reference {

template <>
void compute(const Arrays<graph::Add>& at) {
  for (int64_t i = 0; i < at.out.sum.shape.elements(); ++i) at.out.sum.put(i, at.in.a.at(i) + at.in.b.at(i));
}

}  // namespace strata::reference
