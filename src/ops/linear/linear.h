// The linear layer and its gradients. Weights and biases are fp32.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct LinearAttrs {
  bool f32_output = false;
  bool operator==(const LinearAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("f32_output", f32_output); }
};

// y = x · weightᵀ (+ bias)
struct Linear {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                    // [N, K]
    Of<Weight> weight;            // [O, K]
    Of<Optional<F32>> bias = {};  // [O]
    static constexpr auto fields() {
      return std::tuple{field("x", &In::x), field("weight", &In::weight), field("bias", &In::bias)};
    }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, O], in x's dtype unless f32_output
    static constexpr auto fields() { return std::tuple{field("y", &Out::y)}; }
  };
  using Attrs = LinearAttrs;
  static const graph::OpDef def;
};
graph::ValueId linear(graph::Graph& graph, graph::ValueId x, graph::ValueId weight,
                      graph::ValueId bias = graph::kNone, bool f32_output = false);

// dx = dy · weight
struct LinearGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;         // [N, O]
    Of<Weight> weight;  // [O, K]
    static constexpr auto fields() { return std::tuple{field("dy", &In::dy), field("weight", &In::weight)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // [N, K]
    static constexpr auto fields() { return std::tuple{field("dx", &Out::dx)}; }
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
    static constexpr auto fields() { return std::tuple{field("dy", &In::dy), field("x", &In::x)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [O, K], accumulates
    static constexpr auto fields() { return std::tuple{field("dw", &Out::dw)}; }
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// The gradient of a bias.
struct ColumnSums {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;  // [N, O]
    static constexpr auto fields() { return std::tuple{field("dy", &In::dy)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> sums;  // [O], accumulates
    static constexpr auto fields() { return std::tuple{field("sums", &Out::sums)}; }
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// A weight in the encoding of its output; made by lowering.
struct PackWeight {
  template <template <typename> class Of>
  struct In {
    Of<F32> weight;
    static constexpr auto fields() { return std::tuple{field("weight", &In::weight)}; }
  };
  template <template <typename> class Of>
  struct Out {
    Of<Weight> packed;
    static constexpr auto fields() { return std::tuple{field("packed", &Out::packed)}; }
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
