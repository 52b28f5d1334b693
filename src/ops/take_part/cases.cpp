#include "ops/cases.h"
#include "ops/take_part/take_part.h"

namespace strata::device {

using namespace op_rows;

namespace {

// The middle one of three.
Operand middle_rank() {
  return rank_at({{Axis::kContext, 1}});
}

}  // namespace

template <>
void cases<ops::TakePart>(Cases& to) {
  to.add<ops::TakePart>("take_part_whole", {.x = f32({6}), .rank = middle_rank()}, {.axis = Axis::kContext});
  to.add<ops::TakePart>("take_part", {.x = f32({6}), .rank = middle_rank()},
                        {.axis = Axis::kContext, .ranks = 3}, {.replicated_only = true});
  to.untimed<ops::TakePart>(kPass);
}

template <>
void cases<ops::TakePartGrad>(Cases& to) {
  for (const int64_t ranks : {1, 3})
    to.add<ops::TakePartGrad>(ranks > 1 ? "take_part_grad" : "take_part_grad_whole",
                              {.dy = f32({2}), .rank = middle_rank()},
                              {.axis = Axis::kContext, .ranks = ranks});
  to.untimed<ops::TakePartGrad>(kPass);
}

}  // namespace strata::device
