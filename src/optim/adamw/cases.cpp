#include "optim/adamw/adamw.h"
#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::AdamWUpdate>(Cases& to) {
  const CaseOptions<optim::AdamWUpdate> updates{
      .updates = {{"parameter", "parameter"}, {"m", "m"}, {"v", "v"}}};
  to.add<optim::AdamWUpdate>("adamw",
                             {.parameter = f32({12, 20}),
                              .m = f32({12, 20}),
                              .v = positive({12, 20}),
                              .gradient = f32({12, 20}),
                              .scalars = update_scalars()},
                             update_with(optim::AdamW{}), updates);
  const Operand bias = f32({96}, {48, 24, 24});
  to.add<optim::AdamWUpdate>("adamw_rows",
                             {.parameter = bias,
                              .m = f32({48}, {24, 24}),
                              .v = positive({48}, {24, 24}),
                              .gradient = bias,
                              .scalars = update_scalars()},
                             update_rows(optim::AdamW{}, 72, 24, 24, 48), updates);
  to.time<optim::AdamWUpdate>({.parameter = timed_matrix(),
                               .m = timed_state(),
                               .v = timed_state(),
                               .gradient = timed_matrix(),
                               .scalars = timed_scalars()},
                              update_with(optim::AdamW{}, 1), updates);
}

}  // namespace strata::device
