// Sides that several ops have.
#pragma once

#include "graph/typed_op.h"

namespace strata::ops {

using graph::Axis;
using graph::field;
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
    static constexpr auto fields() { return std::tuple{field("x", &In::x)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;
    static constexpr auto fields() { return std::tuple{field("y", &Out::y)}; }
  };
  using Attrs = OpAttrs;
};
// (dy, x) → dx
template <typename OpAttrs>
struct UnaryGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    static constexpr auto fields() { return std::tuple{field("dy", &In::dy), field("x", &In::x)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    static constexpr auto fields() { return std::tuple{field("dx", &Out::dx)}; }
  };
  using Attrs = OpAttrs;
};

// gate_up → y, a function of both parts
template <typename OpAttrs>
struct Gating {
  template <template <typename> class Of>
  struct In {
    Of<Act> gate_up;  // [N, gate | up]
    static constexpr auto fields() { return std::tuple{field("gate_up", &In::gate_up)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, F]
    static constexpr auto fields() { return std::tuple{field("y", &Out::y)}; }
  };
  using Attrs = OpAttrs;
};

}  // namespace strata::ops
