#include "ops/cases.h"
#include "ops/predict/predict.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::TargetsAhead>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::TargetsAhead>(
        "targets_ahead" + s.name,
        {.targets = i32_by(24, [](int64_t i) { return i % 7 == 4 ? -1.0 : static_cast<double>(i); }),
         .ahead = i32_by(24, [](int64_t i) { return i % 5 == 1 ? -1.0 : static_cast<double>(i + 1); })},
        {3}, {.ragged = s.ragged});
  to.untimed<ops::TargetsAhead>("only ids, priced by the bandwidth");
}

}  // namespace strata::device
