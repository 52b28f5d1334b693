#include "ops/chosen_share/chosen_share.h"

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::ChosenShare>(Cases& to) {
  const Operand targets = i32_of({3, -1, 0, 7, 7, 2, -1, 1, 4, 5, 6, 2, 1, 0, 3, 2});
  to.add<ops::ChosenShare>("chosen_share",
                           {.chosen_lse = f32({4, 2, 4}), .lse = f32({4, 2, 4}), .targets = targets},
                           {.heads = 2, .sequence_length = 4});
  to.add<ops::ChosenShare>("chosen_share_of_a_part",
                           {.chosen_lse = f32({4, 2, 4}), .lse = f32({4, 2, 4}), .targets = targets},
                           {.heads = 6, .sequence_length = 4}, {.adds = true});
  to.untimed<ops::ChosenShare>(kPass);
}

}  // namespace strata::device
