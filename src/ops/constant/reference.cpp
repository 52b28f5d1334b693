#include "ops/reference.h"
#include "ops/constant/constant.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Constant>& at) {
  for (int64_t i = 0; i < at.attrs.elements; ++i) at.out.values.put(i, at.attrs.number);
}

}  // namespace strata::reference
