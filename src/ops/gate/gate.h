// A value times a function of a gate beside it: the output of attention (Qwen3-Next), the input and output of a short
// convolution (LFM2).
#pragma once

#include "ops/signatures.h"
#include "tensor/gate_kind.h"

namespace strata::ops {

using strata::GateKind;

struct GateAttrs {
  GateKind kind = GateKind::kIdentity;
  bool operator==(const GateAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("kind", static_cast<int64_t>(kind)); }
};

// y = x · f(gate)
struct Gate {
  template <template <typename> class Of>
  struct In {
    Of<Act> x, gate;  // [N, D]
    static constexpr std::string_view names = "x gate";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, D]
    static constexpr std::string_view names = "y";
  };
  using Attrs = GateAttrs;
  static const graph::OpDef def;
};
// dx = dy · f(gate), dgate = dy · x · f′(gate)
struct GateGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x, gate;
    static constexpr std::string_view names = "dy x gate";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx, dgate;
    static constexpr std::string_view names = "dx dgate";
  };
  using Attrs = GateAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
