#include "ops/cases.h"
#include "ops/softcap/softcap.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Softcap>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::Softcap>("softcap" + s.name, {.x = f32({s.rows, s.width})}, {1.5}, {.ragged = s.ragged});
  to.untimed<ops::Softcap>(kText);
}

}  // namespace strata::device
