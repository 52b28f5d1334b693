// Histories of delayed scaling (quantize/delayed.h) in the update of a step.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// Rolls the greatest magnitude of the step's tensor into its history, once for all micro-batches. A step that is skipped
// changes no history: its values do not count.
struct FollowHistory {
  template <template <typename> class Of>
  struct In {
    Of<F32> history;   // [1, 1 + steps]
    Of<F32> greatest;  // [1, 1], of all ranks
    Of<U8> decision;   // a GuardDecision
    static constexpr std::string_view names = "history greatest decision";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> history;
    static constexpr std::string_view names = "history";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::optim
