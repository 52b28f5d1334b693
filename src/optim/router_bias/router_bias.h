// Balancing experts without a loss (Wang et al. 2024, arXiv 2408.15664): once a step, after all its loads are
// known, the bias by which experts are chosen rises for experts with fewer tokens than the mean, and falls
// for those with more.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

struct RouterBiasAttrs {
  double rate = 0;
  bool operator==(const RouterBiasAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("rate", rate); }
};
// bias += rate · sign(mean of the loads − load). A step that is skipped leaves it.
struct RouterBiasUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> bias;   // [E]
    Of<I64> loads;  // [E]
    Of<U8> scalars;
    static constexpr std::string_view names = "bias loads scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> bias;
    static constexpr std::string_view names = "bias";
  };
  using Attrs = RouterBiasAttrs;
  static const graph::OpDef def;
};

// Adds the node of a parameter of the role kRouterBias.
void balance_router(graph::Graph& graph, const graph::Parameter& bias, graph::ValueId scalars);

}  // namespace strata::optim
