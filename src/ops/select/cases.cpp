#include "ops/cases.h"
#include "ops/select/select.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::TakeRow>(Cases& to) {
  for (const Sizes& s : Cases::sizes())
    to.add<ops::TakeRow>("take_row" + s.name, {.x = act({s.rows, s.width}), .index = i32_of({5})}, {},
                         {.ragged = s.ragged});
  to.untimed<ops::TakeRow>(kText);
}

}  // namespace strata::device
