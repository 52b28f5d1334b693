// The weight of a loss besides the main one, computed on the device.
#pragma once

#include "graph/signature.h"

namespace strata::graph {

struct LossSeedAttrs {
  double weight = 1;
  bool operator==(const LossSeedAttrs&) const = default;
  void describe(AttributeText& to) const { to("weight", weight); }
};

// seed = weight · main_terms / terms · scale; 0 where the loss has no terms.
struct LossSeed {
  template <template <typename> class Of>
  struct In {
    Of<I64> main_terms;            // [1], of the main loss
    Of<I64> terms;                 // [1], of this one
    Of<Optional<F32>> scale = {};  // [1], of all losses; absent: 1
    static constexpr std::string_view names = "main_terms terms scale";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> seed;  // [1]
    static constexpr std::string_view names = "seed";
  };
  using Attrs = LossSeedAttrs;
  static const OpDef def;
};

}  // namespace strata::graph
