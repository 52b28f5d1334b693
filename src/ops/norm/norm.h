// RMS norm (Zhang and Sennrich, arXiv 1910.07467) and layer norm (Ba et al., arXiv 1607.06450), over the last
// dimension, of x or of x + residual.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct Normed {
  graph::ValueId y;  // the normalised value
  graph::ValueId h;  // the input of the norm: x + residual, or x itself
};

// Attributes of the norm and both of its gradients, as are LayerNormAttrs.
struct RmsNormAttrs {
  double eps = 1e-5;
  double weight_offset = 0;
  bool operator==(const RmsNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("weight_offset", weight_offset);
  }
};

// h = x (+ residual); y = h · rstd · (weight + weight_offset) with rstd = 1 / √(mean(h²) + eps)
struct RmsNorm {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                        // [N, D]
    Of<F32> weight;                   // [D]
    Of<Optional<Act>> residual = {};  // as x
    static constexpr std::string_view names = "x weight residual";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;                 // [N, D]
    Of<F32> rstd;              // [N]
    Of<Optional<Act>> h = {};  // [N, D], with the residual
    static constexpr std::string_view names = "y rstd h";
  };
  using Attrs = RmsNormAttrs;
  static const graph::OpDef def;
};
Normed rms_norm(graph::Graph& graph, graph::ValueId x, graph::ValueId residual, graph::ValueId weight,
                double eps, double weight_offset = 0);

// dx = rstd · (g − ĥ · mean(g · ĥ)) + dh with g = dy · (weight + weight_offset) and ĥ = h · rstd
struct RmsNormGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, h;              // [N, D]
    Of<F32> rstd;               // [N]
    Of<F32> weight;             // [D]
    Of<Optional<Act>> dh = {};  // [N, D], what flows into h besides
    static constexpr std::string_view names = "dy h rstd weight dh";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // [N, D]
    static constexpr std::string_view names = "dx";
  };
  using Attrs = RmsNormAttrs;
  static const graph::OpDef def;
};

struct RmsNormGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, h;  // [N, D]
    Of<F32> rstd;   // [N]
    static constexpr std::string_view names = "dy h rstd";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [D], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = RmsNormAttrs;
  static const graph::OpDef def;
};

struct LayerNormAttrs {
  double eps = 1e-5;
  bool operator==(const LayerNormAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("eps", eps); }
};

// h = x (+ residual); y = (h − mean(h)) · rstd · weight + bias with rstd = 1 / √(var(h) + eps)
struct LayerNorm {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                        // [N, D]
    Of<F32> weight, bias;             // [D]
    Of<Optional<Act>> residual = {};  // as x
    static constexpr std::string_view names = "x weight bias residual";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;                 // [N, D]
    Of<F32> mean, rstd;        // [N]
    Of<Optional<Act>> h = {};  // [N, D], with the residual
    static constexpr std::string_view names = "y mean rstd h";
  };
  using Attrs = LayerNormAttrs;
  static const graph::OpDef def;
};
Normed layer_norm(graph::Graph& graph, graph::ValueId x, graph::ValueId residual, graph::ValueId weight,
                  graph::ValueId bias, double eps);

// dx = rstd · (g − mean(g) − ĥ · mean(g · ĥ)) + dh with g = dy · weight and ĥ = (h − mean) · rstd
struct LayerNormGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, h;              // [N, D]
    Of<F32> mean, rstd;         // [N]
    Of<F32> weight;             // [D]
    Of<Optional<Act>> dh = {};  // [N, D], what flows into h besides
    static constexpr std::string_view names = "dy h mean rstd weight dh";
  };
  template <template <typename> class Of>
  using Out = RmsNormGradInput::Out<Of>;
  using Attrs = LayerNormAttrs;
  static const graph::OpDef def;
};

struct LayerNormGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, h;       // [N, D]
    Of<F32> mean, rstd;  // [N]
    static constexpr std::string_view names = "dy h mean rstd";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw, db;  // [D], accumulate
    static constexpr std::string_view names = "dw db";
  };
  using Attrs = LayerNormAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
