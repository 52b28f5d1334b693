#include <cmath>

#include "ops/reference.h"
#include "ops/softcap/softcap.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::Softcap>& at) {
  const double cap = at.attrs.softcap;
  for (int64_t i = 0; i < at.in.x.shape.elements(); ++i)
    at.out.y.put(i, cap * std::tanh(at.in.x.at(i) / cap));
}

}  // namespace strata::reference
