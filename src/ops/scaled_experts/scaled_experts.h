// The matmuls of experts (ops/experts) on quantised operands (ops/quantize): codes and scales in place of activations
// and weights.
//
// Activations are quantised along their rows, one a token or a pair, so that no scale depends on other rows: not on those
// of other ranks, and not on those of other passes. The weights of all experts are one matrix. A weight gradient sums
// over an expert's pairs, along which such scales differ: values of 128 consecutive pairs are decoded and quantised again
// along them (kernels/cpu/scaled_experts.h).
#pragma once

#include "ops/experts/experts.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::ops {

struct ScaledExpertsAttrs : ExpertsAttrs {
  ScaledOperandAttrs first, second;
  // Weight gradients: the rules along the pairs of a group.
  std::optional<quantize::ScaleRule> first_along_pairs = {}, second_along_pairs = {};
  DType out = DType::kF32;
  bool operator==(const ScaledExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Shapes: experts.h.
struct ScaledExpertsProduct {
  template <template <typename> class Of>
  struct In {
    Of<Any> x, x_scales;
    Of<I32> ids;
    Of<Any> weight, weight_scales;  // [E · O, K]
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "x x_scales ids weight weight_scales offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;
    static constexpr std::string_view names = "y";
  };
  using Attrs = ScaledExpertsAttrs;
};
struct ScaledExpertsGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Any> dy, dy_scales;
    Of<I32> ids;
    Of<Any> weight, weight_scales;  // [K, E · O], or [E · O, K] across
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy dy_scales ids weight weight_scales offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    static constexpr std::string_view names = "dx";
  };
  using Attrs = ScaledExpertsAttrs;
};
struct ScaledExpertsGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Any> dy, dy_scales, x, x_scales;  // quantised along rows
    Of<I32> ids;
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy dy_scales x x_scales ids offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [E · O, K], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = ScaledExpertsAttrs;
};

struct ScaledExpertsIn : ScaledExpertsProduct {
  static const graph::OpDef def;
};
struct ScaledExpertsInGradInput : ScaledExpertsGradInput {
  static const graph::OpDef def;
};
struct ScaledExpertsInGradWeight : ScaledExpertsGradWeight {
  static const graph::OpDef def;
};
struct ScaledExpertsOut : ScaledExpertsProduct {
  static const graph::OpDef def;
};
struct ScaledExpertsOutGradInput : ScaledExpertsGradInput {
  static const graph::OpDef def;
};
struct ScaledExpertsOutGradWeight : ScaledExpertsGradWeight {
  static const graph::OpDef def;
};

}  // namespace strata::ops
