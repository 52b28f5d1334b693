#include "ops/case_routers.h"
#include "ops/two_level/two_level.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::TwoLevelLogits>(Cases& to) {
  for (const RouterSizes& s : router_sizes())
    to.add<ops::TwoLevelLogits>(
        "two_level_logits" + s.name,
        {.groups = f32({s.tokens(), s.levels}), .logits = f32({s.tokens(), s.experts})}, {},
        {.ragged = s.ragged});
  to.untimed<ops::TwoLevelLogits>(kOther);
}

template <>
void cases<ops::TwoLevelLogitsGrad>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    const Operand logits = f32({s.tokens(), s.experts});
    to.add<ops::TwoLevelLogitsGrad>("two_level_logits_grad" + s.name,
                                    {.dy = logits, .groups = f32({s.tokens(), s.levels}), .logits = logits},
                                    {}, {.ragged = s.ragged});
  }
  to.untimed<ops::TwoLevelLogitsGrad>(kOther);
}

}  // namespace strata::device
