#include "ops/cases.h"
#include "graph/sum.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<graph::Add>(Cases& to) {
  for (const Sizes& s : Cases::sizes()) {
    const Operand x = act({s.rows, s.width});
    to.add<graph::Add>("add" + s.name, {.a = x, .b = x}, {}, {.ragged = s.ragged});
  }
  to.time<graph::Add>({.a = timed_rows(), .b = timed_rows()});
}

}  // namespace strata::device
