#include "optim/case_operands.h"
#include "optim/lion/lion.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::LionUpdate>(Cases& to) {
  const CaseOptions<optim::LionUpdate> updates{
      .updates = {{"parameter", "parameter"}, {"momentum", "momentum"}}};
  to.add<optim::LionUpdate>("lion",
                            {.parameter = f32({12, 20}),
                             .momentum = f32({12, 20}),
                             .gradient = f32({12, 20}),
                             .scalars = update_scalars()},
                            update_with(optim::Lion{}), updates);
  const Operand bias = f32({96}, {48, 24, 24});
  to.add<optim::LionUpdate>(
      "lion_rows",
      {.parameter = bias, .momentum = f32({48}, {24, 24}), .gradient = bias, .scalars = update_scalars()},
      update_rows(optim::Lion{}, 48, 24, 0, 48), updates);
  to.time<optim::LionUpdate>({.parameter = timed_matrix(),
                              .momentum = timed_state(),
                              .gradient = timed_matrix(),
                              .scalars = timed_scalars()},
                             update_with(optim::Lion{}, 1), updates);
}

}  // namespace strata::device
