// Values cut to a range, with torch.clamp's gradient: OLMo's clip_qkv.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

struct ClampAttrs {
  double limit = 0;
  bool operator==(const ClampAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("limit", limit); }
};
// y = min(max(x, -limit), limit).
graph::ValueId clamp(graph::Graph& graph, graph::ValueId x, double limit);
struct Clamp {
  enum In : int { kX };
  enum Out : int { kY };
};
extern const graph::OpDef kClamp;
struct ClampGrad {
  enum In : int { kDy, kX };
  enum Out : int { kDx };
};
extern const graph::OpDef kClampGrad;  // (dy, x) → dx: dy where |x| ≤ limit, else 0

}  // namespace strata::ops
