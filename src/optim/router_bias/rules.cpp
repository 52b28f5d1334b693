#include "base/error.h"
#include "optim/router_bias/router_bias.h"
#include "optim/update_rules.h"

namespace strata::optim {

// The mean is over all experts.
const OpDef RouterBiasUpdate::def = define<RouterBiasUpdate>({
    .name = "router_bias_update",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<RouterBiasUpdate> {
      require(node, node.in.bias->shape == node.in.loads->shape,
              "the bias must be f32 and the loads i64, one for each expert");
      return {.bias = {DType::kF32, node.in.bias->shape}};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 3); },
    .in_place = {{"bias", "bias"}},
});

void balance_router(Graph& graph, const graph::Parameter& bias, ValueId scalars) {
  STRATA_CHECK(bias.balance.loads != kNone, "no loads are counted for {}", graph.value(bias.value).name);
  graph.set_layer(bias.layer);
  add_into<RouterBiasUpdate>(graph, {.bias = bias.value, .loads = bias.balance.loads, .scalars = scalars},
                             {.bias = bias.value}, {bias.balance.rate});
  graph.set_layer(kNone);
}

}  // namespace strata::optim
