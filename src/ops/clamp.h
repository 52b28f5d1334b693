// Values cut to a range, with torch.clamp's gradient: OLMo's clip_qkv.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

// y = min(max(x, -limit), limit).
graph::ValueId clamp(graph::Graph& graph, graph::ValueId x, double limit);
extern const graph::OpDef kClamp;
extern const graph::OpDef kClampGrad;  // (dy, x) → dx: dy where |x| ≤ limit, else 0

}  // namespace strata::ops
