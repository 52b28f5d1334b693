// The one op that differentiation itself needs: the sum of two values.
#pragma once

#include "graph/op.h"

namespace strata::graph {

// out = a + b in fp32, rounded to the dtype of both.
extern const OpDef kAdd;
ValueId add_sum(Graph& graph, ValueId a, ValueId b);

}  // namespace strata::graph
