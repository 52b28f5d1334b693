// Sides that several ops have.
#pragma once

#include "graph/typed_op.h"

namespace strata::ops {

using graph::Axis;
using graph::Graph;
using graph::OpDef;
using graph::ValueId;
using namespace graph::kinds;

// x → y
template <typename OpAttrs>
struct Unary {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;
    static constexpr std::string_view names = "y";
  };
  using Attrs = OpAttrs;
};
// (dy, x) → dx
template <typename OpAttrs>
struct UnaryGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    static constexpr std::string_view names = "dy x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    static constexpr std::string_view names = "dx";
  };
  using Attrs = OpAttrs;
};

// gate_up → y, a function of both parts
template <typename OpAttrs>
struct Gating {
  template <template <typename> class Of>
  struct In {
    Of<Act> gate_up;  // [N, gate | up]
    static constexpr std::string_view names = "gate_up";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, F]
    static constexpr std::string_view names = "y";
  };
  using Attrs = OpAttrs;
};
// (dy, gate_up) → d_gate_up
template <typename OpAttrs>
struct GatingGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;       // [N, F]
    Of<Act> gate_up;  // [N, gate | up]
    static constexpr std::string_view names = "dy gate_up";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> d_gate_up;  // as gate_up
    static constexpr std::string_view names = "d_gate_up";
  };
  using Attrs = OpAttrs;
};

}  // namespace strata::ops
