// The same values in other memory: what a stage of a pipeline sends to another and goes on reading itself.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct Copy {
  template <template <typename> class Of>
  struct In {
    Of<Any> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Any> copy;
    static constexpr std::string_view names = "copy";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
graph::ValueId copy(graph::Graph& graph, graph::ValueId x);

}  // namespace strata::ops
