// The one op that differentiation itself needs: the sum of two values.
#pragma once

#include "graph/signature.h"

namespace strata::graph {

// sum = a + b in fp32, rounded to the dtype of both.
struct Add {
  template <template <typename> class Of>
  struct In {
    Of<Act> a, b;
    static constexpr std::string_view names = "a b";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> sum;
    static constexpr std::string_view names = "sum";
  };
  using Attrs = NoAttrs;
  static const OpDef def;
};
ValueId add_sum(Graph& graph, ValueId a, ValueId b);

}  // namespace strata::graph
