#include "optim/adopt/adopt.h"
#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::AdoptUpdate>(Cases& to) {
  const CaseOptions<optim::AdoptUpdate> updates{
      .updates = {{"parameter", "parameter"}, {"m", "m"}, {"v", "v"}}};
  for (const int64_t update : {3, 1}) {
    const UpdateScalars scalars{.lr = 0.1f, .grad_scale = 0.25f, .skip = 0, .update = update};
    to.add<optim::AdoptUpdate>(update > 1 ? "adopt" : "adopt_first",
                               {.parameter = f32({12, 20}),
                                .m = f32({12, 20}),
                                .v = positive({12, 20}),
                                .gradient = f32({12, 20}),
                                .scalars = bytes_of(scalars, optim::kScalarBytes)},
                               update_with(optim::Adopt{}), updates);
  }
  const Operand bias = f32({96}, {48, 24, 24});
  to.add<optim::AdoptUpdate>("adopt_rows",
                             {.parameter = bias,
                              .m = f32({48}, {24, 24}),
                              .v = positive({48}, {24, 24}),
                              .gradient = bias,
                              .scalars = update_scalars()},
                             update_rows(optim::Adopt{}, 72, 24, 24, 48), updates);
  to.time<optim::AdoptUpdate>({.parameter = timed_matrix(),
                               .m = timed_state(),
                               .v = timed_state(),
                               .gradient = timed_matrix(),
                               .scalars = timed_scalars()},
                              update_with(optim::Adopt{}, 1), updates);
}

}  // namespace strata::device
