#include "ops/copy/copy.h"

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Copy>(Cases& to) {
  to.add<ops::Copy>("copy", {.x = act({8, 12})}, {},
                    {.differentiable = std::vector<OutputName<ops::Copy>>{"copy"}});
  to.add<ops::Copy>("copy_of_places", {.x = i32_of({3, -1, 0, 7, 7, 2, 5, 1})}, {},
                    {.differentiable = std::vector<OutputName<ops::Copy>>{}});
  to.untimed<ops::Copy>(kPass);
}

}  // namespace strata::device
