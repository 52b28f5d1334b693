// The experts' FFNs of a layer. Internal to the mixtures of experts.
#pragma once

#include <string>

#include "layers/layers.h"

namespace strata::layers {

// A metric of the layer, which the nodes of a step add to.
ValueId router_metric(Context& context, const MoeLayer& layer, graph::MetricKind kind, DType dtype,
                      int64_t elements);

// y, with a row for each of x, as for each of ids[N, k]: what its experts give, by its weights f32[N, k] of
// them; kNone: all 1. Parameters NAME.experts.up.weight, NAME.experts.down.weight, and with biases
// NAME.experts.up.bias and NAME.experts.down.bias.
ValueId experts_of(Context& context, const MoeLayer& layer, ValueId x, ValueId ids, ValueId weights);

}  // namespace strata::layers
