#include "ops/cases.h"
#include "ops/constant/constant.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Constant>(Cases& to) {
  to.add<ops::Constant>("constant", {}, {9, 1.5}, {.replicated_only = true});
  to.untimed<ops::Constant>(kOnce);
}

}  // namespace strata::device
