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
struct GatedGrad : GatingGrad<ActivationAttrs> {
  static const graph::OpDef def;
};
graph::ValueId gated(graph::Graph& graph, graph::ValueId gate_up, ActivationKind kind);

}  // namespace strata::ops
