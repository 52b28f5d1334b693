// One row of many: the last token of a prompt.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

// row = x[index]
struct TakeRow {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;      // [N, D]
    Of<I32> index;  // [1], among the per-step parameters
    static constexpr std::string_view names = "x index";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> row;  // [1, D]
    static constexpr std::string_view names = "row";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
