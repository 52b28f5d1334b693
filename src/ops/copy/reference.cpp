#include "ops/copy/copy.h"

#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Copy>& at) {
  for (int64_t i = 0; i < at.in.x.shape.elements(); ++i) at.out.copy.put(i, at.in.x.at(i));
}

}  // namespace strata::reference
