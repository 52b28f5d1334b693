// Building blocks of the signatures of optimizers' ops. A node's inputs are the parameter, the optimizer's
// states, the gradient and the step's scalars; its outputs are the parameter and the states, in place.
#pragma once

#include "ops/signatures.h"
#include "optim/optimizer.h"

namespace strata::optim {

using namespace graph::kinds;

// A state of some rows of a parameter, as returned by the op's function `states(rows)`; by default it has the
// shape of the rows.
struct StateShape {
  Shape shape;
  StateLayout layout = StateLayout::kElements;
  int64_t block = 0;   // elements of the parameter that an entry is for, in the order of memory; 0: not so
  bool whole = false;  // on every rank, even if the parameter is sharded
};
template <typename Kind>
using StateShapes = StateShape;

// The ops of an optimizer.
template <typename... Ops>
struct OpList {};

// A momentum as its only state: Lion and Muon.
struct MomentumUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter, momentum, gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter momentum gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter, momentum;
    static constexpr std::string_view names = "parameter momentum";
  };
  using Attrs = UpdateAttrs;
};

}  // namespace strata::optim
