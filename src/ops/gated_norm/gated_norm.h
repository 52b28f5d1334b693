// RMS norm of groups of a row's columns with a gate, after the norm (gated delta nets) or before it (Mamba-2).
#pragma once

#include "ops/signatures.h"
#include "tensor/gate_kind.h"

namespace strata::ops {

struct GatedNormAttrs {
  double eps = 1e-5;
  int64_t group = 0;                // columns that are normalised together, of all ranks
  bool gate_first = false;          // the gated value is normalised
  GateKind gate = GateKind::kSilu;  // SiLU or the logistic function
  bool shared = true;               // one weight for all groups: f32[group]; else f32[D]
  bool operator==(const GatedNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("group", group);
    to("gate_first", gate_first);
    to("gate", static_cast<int64_t>(gate));
    to("shared", shared);
  }
};

// gate_first: h = x · f(gate) and y = h · rstd · weight; else h = x and y = h · rstd · weight · f(gate), with
// rstd = 1 / √(mean(h²) + eps) of each group. With means a row is part of one group.
struct GatedNorm {
  template <template <typename> class Of>
  struct In {
    Of<Act> x, gate;               // [N, D]
    Of<F32> weight;                // [group] or [D]
    Of<Optional<F32>> means = {};  // [N, 1] (GatedMeans), if ranks share the columns of a group
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
// Finds attrs.shared by the width of the weight. Where ranks share the only group of a row its mean square goes
// over them.
graph::ValueId gated_norm(graph::Graph& graph, graph::ValueId x, graph::ValueId gate, graph::ValueId weight,
                          GatedNormAttrs attrs);

struct GatedNormGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x, gate;
    Of<F32> rstd;  // [N, groups]
    Of<F32> weight;
    Of<Optional<F32>> means = {};  // [N, 1], of h · dh / rstd without the norm's own share
    static constexpr std::string_view names = "dy x gate rstd weight means";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx, dgate;
    static constexpr std::string_view names = "dx dgate";
  };
  using Attrs = GatedNormAttrs;
  static const graph::OpDef def;
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
    Of<F32> dw;  // as the weight, accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = GatedNormAttrs;
  static const graph::OpDef def;
};

// Means over the group that all ranks share: of h²; with dy and the weight, which come together, of h times
// the gradient of h · rstd. No gradient passes: that of the norm includes it.
struct GatedMeans {
  template <template <typename> class Of>
  struct In {
    Of<Act> x, gate;
    Of<Optional<Act>> dy = {};
    Of<Optional<F32>> weight = {};  // [D]
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

}  // namespace strata::ops
