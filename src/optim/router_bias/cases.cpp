#include "optim/case_operands.h"
#include "optim/router_bias/router_bias.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::RouterBiasUpdate>(Cases& to) {
  to.add<optim::RouterBiasUpdate>(
      "router_bias_update",
      {.bias = f32({6}),
       .loads = {.dtype = DType::kI64,
                 .shape = {6},
                 .content = [](int64_t i) { return static_cast<double>(i * 5 % 7); }},
       .scalars = update_scalars()},
      {0.01}, {.updates = {{"bias", "bias"}}, .replicated_only = true});
  to.untimed<optim::RouterBiasUpdate>(kFewNumbers);
}

}  // namespace strata::device
