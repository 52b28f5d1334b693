// Values cut to a range, with torch.clamp's gradient: OLMo's clip_qkv, gpt-oss's experts.
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

// y[N, F] = (clamp(up, ±limit) + 1) · g · sigmoid(alpha · g) with g = min(gate, limit), of gate_up[N, gate |
// up].
struct ClampedGatedAttrs {
  double alpha = 1;
  double limit = 0;
  bool operator==(const ClampedGatedAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("alpha", alpha);
    to("limit", limit);
  }
};
graph::ValueId clamped_gated(graph::Graph& graph, graph::ValueId gate_up, const ClampedGatedAttrs& attrs);
struct ClampedGated {
  enum In : int { kGateUp };
  enum Out : int { kY };
};
struct ClampedGatedGrad {
  enum In : int { kDy, kGateUp };
  enum Out : int { kDgateUp };
};
extern const graph::OpDef kClampedGated;
extern const graph::OpDef kClampedGatedGrad;  // (dy, gate_up) → d_gate_up

}  // namespace strata::ops
