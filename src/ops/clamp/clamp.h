// Values cut to a range, with torch.clamp's gradient: OLMo's clip_qkv, gpt-oss's experts.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct ClampAttrs {
  double limit = 0;
  bool operator==(const ClampAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("limit", limit); }
};

// y = min(max(x, -limit), limit)
struct Clamp : Unary<ClampAttrs> {
  static const graph::OpDef def;
};
// dx = dy where |x| ≤ limit, else 0
struct ClampGrad : UnaryGrad<ClampAttrs> {
  static const graph::OpDef def;
};

struct ClampedGatedAttrs {
  double alpha = 1;
  double limit = 0;
  bool operator==(const ClampedGatedAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("alpha", alpha);
    to("limit", limit);
  }
};

// y = (clamp(up, ±limit) + 1) · g · sigmoid(alpha · g) with g = min(gate, limit)
struct ClampedGated : Gating<ClampedGatedAttrs> {
  static const graph::OpDef def;
};

struct ClampedGatedGrad : GatingGrad<ClampedGatedAttrs> {
  static const graph::OpDef def;
};

}  // namespace strata::ops
