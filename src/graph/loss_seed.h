// What a loss beside the main one is weighted by, made on the device.
#pragma once

#include "graph/op.h"

namespace strata::graph {

struct LossSeedAttrs {
  double weight = 1;
  bool operator==(const LossSeedAttrs&) const = default;
  void describe(AttributeText& to) const { to("weight", weight); }
};
struct LossSeed {
  enum In : int { kMainTerms, kTerms };
  enum Out : int { kSeed };
};
// (terms of the main loss i64[1], terms of this one i64[1]) → seed f32[1] = weight · main / own; 0 where the
// loss has no terms.
extern const OpDef kLossSeed;

}  // namespace strata::graph
