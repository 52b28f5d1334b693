// A value times a function of its gate: output-gated attention (Qiu et al. 2025, arXiv 2505.06708), the gates
// around the convolutions of LFM2.
#pragma once

#include "ops/signatures.h"
#include "tensor/gate_kind.h"

namespace strata::ops {

struct GateAttrs {
  GateKind kind = GateKind::kSigmoid;
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
graph::ValueId gate(graph::Graph& graph, graph::ValueId x, graph::ValueId by, GateKind kind);

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
