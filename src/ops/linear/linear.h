// The linear layer and its gradients. Weights and biases are fp32.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct LinearAttrs {
  bool f32_output = false;
  bool detached = false;  // x gets no gradient
  bool operator==(const LinearAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("f32_output", f32_output);
    if (detached) to("detached", detached);
  }
};

// y = x · weightᵀ (+ bias)
struct Linear {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                    // [N, K]
    Of<Weight> weight;            // [O, K]
    Of<Optional<F32>> bias = {};  // [O]
    static constexpr std::string_view names = "x weight bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, O], in x's dtype unless f32_output
    static constexpr std::string_view names = "y";
  };
  using Attrs = LinearAttrs;
  static const graph::OpDef def;
};
graph::ValueId linear(graph::Graph& graph, graph::ValueId x, graph::ValueId weight,
                      graph::ValueId bias = graph::kNone, const LinearAttrs& attrs = {});

// dx = dy · weight
struct LinearGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;         // [N, O]
    Of<Weight> weight;  // [O, K]
    static constexpr std::string_view names = "dy weight";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // [N, K]
    static constexpr std::string_view names = "dx";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// dw = dyᵀ · x
struct LinearGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;  // [N, O]
    Of<Act> x;   // [N, K]
    static constexpr std::string_view names = "dy x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [O, K], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// The gradient of a bias.
struct ColumnSums {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;  // [N, O]
    static constexpr std::string_view names = "dy";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> sums;  // [O], accumulates
    static constexpr std::string_view names = "sums";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// A weight packed into the layout of its output; made by lowering.
struct PackWeight {
  template <template <typename> class Of>
  struct In {
    Of<F32> weight;
    static constexpr std::string_view names = "weight";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Weight> packed;
    static constexpr std::string_view names = "packed";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
