// RMS norm of groups of channels with a gate: what linear recurrences return passes it. Gated delta nets norm each
// value head and multiply by the gate (Yang et al. 2024, arXiv 2412.06464), Mamba-2 multiplies first (Dao and Gu 2024,
// arXiv 2405.21060).
#pragma once

#include "ops/signatures.h"
#include "tensor/gate_kind.h"

namespace strata::ops {

struct GatedNormAttrs {
  double eps = 1e-6;
  int64_t group = 0;  // channels that are normed together
  bool gate_first = false;
  GateKind kind = GateKind::kSilu;
  bool operator==(const GatedNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("group", group);
    to("gate_first", gate_first);
    to("kind", static_cast<int64_t>(kind));
  }
};

// With v = x, or x · f(gate) if the gate comes first, and rstd = 1 / √(mean(v²) + eps) of each group:
// y = v · rstd · weight, times f(gate) if it comes last.
struct GatedNorm {
  template <template <typename> class Of>
  struct In {
    Of<Act> x, gate;               // [N, D]
    Of<F32> weight;                // [D], or [group] of all groups
    Of<Optional<F32>> means = {};  // [N, 1] (GatedMeans), where ranks share the channels of the only group
    static constexpr std::string_view names = "x gate weight means";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;     // [N, D]
    Of<F32> rstd;  // [N, groups]
    static constexpr std::string_view names = "y rstd";
  };
  using Attrs = GatedNormAttrs;
  static const graph::OpDef def;
};

// With g = dy · weight (· f(gate) if it comes last): dv = rstd · (g − v · rstd² · mean(g · v)).
struct GatedNormGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x, gate;
    Of<F32> weight, rstd;
    Of<Optional<F32>> means = {};  // [N, 1], of g · v
    static constexpr std::string_view names = "dy x gate weight rstd means";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx, dgate;
    static constexpr std::string_view names = "dx dgate";
  };
  using Attrs = GatedNormAttrs;
  static const graph::OpDef def;
};

struct GatedNormGradWeightAttrs : GatedNormAttrs {
  bool is_shared = false;  // the weight is that of all groups
  bool operator==(const GatedNormGradWeightAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    GatedNormAttrs::describe(to);
    to("is_shared", is_shared);
  }
};
struct GatedNormGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x, gate;
    Of<F32> rstd;
    static constexpr std::string_view names = "dy x gate rstd";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [D] or [group], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = GatedNormGradWeightAttrs;
  static const graph::OpDef def;
};

// Means over all channels, attrs.group of them on all ranks together: of v², or with dy and the weight, which come
// together, of g · v. No gradient passes: that of GatedNorm covers what passes through means.
struct GatedMeans {
  template <template <typename> class Of>
  struct In {
    Of<Act> x, gate;
    Of<Optional<Act>> dy = {};
    Of<Optional<F32>> weight = {};
    static constexpr std::string_view names = "x gate dy weight";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> means;  // [N, 1]
    static constexpr std::string_view names = "means";
  };
  using Attrs = GatedNormAttrs;
  static const graph::OpDef def;
};

struct GatedNormOperands {
  graph::ValueId x, gate, weight;
};
// Where ranks share the channels of the only group, its means go over them.
graph::ValueId gated_norm(graph::Graph& graph, const GatedNormOperands& operands,
                          const GatedNormAttrs& attrs);

}  // namespace strata::ops
