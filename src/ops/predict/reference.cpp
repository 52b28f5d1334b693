#include <algorithm>

#include "ops/predict/predict.h"
#include "ops/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::TargetsAhead>& at) {
  for (int64_t i = 0; i < at.in.targets.shape[0]; ++i) {
    const bool goes_on = (i + 1) % at.attrs.sequence_length != 0 && at.in.targets.index_at(i) >= 0;
    at.out.tokens.put(i, std::max(at.in.ahead.at(i), 0.0));
    at.out.ahead.put(i, goes_on ? at.in.ahead.at(i + 1) : -1);
  }
}

}  // namespace strata::reference
