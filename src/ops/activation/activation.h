// Activation functions, and gated ones (Shazeer, arXiv 2002.05202).
#pragma once

#include "ops/signatures.h"
#include "tensor/activation_kind.h"

namespace strata::ops {

struct ActivationAttrs {
  ActivationKind kind = ActivationKind::kSilu;
  bool operator==(const ActivationAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("kind", static_cast<int64_t>(kind)); }
};

// y = f(x)
struct Activation : Unary<ActivationAttrs> {
  static const graph::OpDef def;
};
struct ActivationGrad : UnaryGrad<ActivationAttrs> {
  static const graph::OpDef def;
};
graph::ValueId activation(graph::Graph& graph, graph::ValueId x, ActivationKind kind);

// y = f(gate) · up
struct Gated : Gating<ActivationAttrs> {
  static const graph::OpDef def;
};
struct GatedGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;       // [N, F]
    Of<Act> gate_up;  // [N, gate | up]
    static constexpr auto fields() {
      return std::tuple{field("dy", &In::dy), field("gate_up", &In::gate_up)};
    }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // as gate_up
    static constexpr auto fields() { return std::tuple{field("dx", &Out::dx)}; }
  };
  using Attrs = ActivationAttrs;
  static const graph::OpDef def;
};
graph::ValueId gated(graph::Graph& graph, graph::ValueId gate_up, ActivationKind kind);

}  // namespace strata::ops
