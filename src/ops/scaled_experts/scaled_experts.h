// The matmuls of experts (ops/experts) on quantised operands (ops/quantize): codes and scales in place of activations
// and weights.
//
// Activations are quantised along their rows, one a token or a pair, so that no scale depends on other rows: not on those
// of other ranks, and not on those of other passes. The weights of all experts are one matrix. A weight gradient sums
// over an expert's pairs, along which such scales differ: values of 128 consecutive pairs are decoded and quantised again
// along them (kernels/cpu/scaled_experts.h), by nvfp4 after a Hadamard transform and, of gradients, stochastically.
#pragma once

#include "ops/experts/experts.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace strata::ops {

struct ScaledExpertsAttrs : ExpertsAttrs {
  ScaledOperandAttrs first, second;
  // Weight gradients: the rules along the pairs of a group.
  std::optional<quantize::ScaleRule> first_along_pairs = {}, second_along_pairs = {};
  // And what happens to values of groups before: transforms_columns of both operands, the rest of the first only. Its
  // rules are of no meaning.
  QuantizeAttrs pair_rounding = {};
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
    Of<Optional<F32>> x_greatest = {};       // [1, rows of x], of nvfp4
    Of<Optional<F32>> weight_greatest = {};  // [1, 1]
    static constexpr std::string_view names =
        "x x_scales ids weight weight_scales offsets x_greatest weight_greatest";
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
    Of<Optional<F32>> dy_greatest = {}, weight_greatest = {};
    static constexpr std::string_view names =
        "dy dy_scales ids weight weight_scales offsets dy_greatest weight_greatest";
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
    Of<Optional<F32>> dy_greatest = {}, x_greatest = {};
    Of<Optional<I32>> places = {};  // [rows of dy, 2], for stochastic rounding
    Of<Optional<I32>> rank = {};    // [axes], if an axis cuts the columns of dy then
    static constexpr std::string_view names =
        "dy dy_scales x x_scales ids offsets dy_greatest x_greatest places rank";
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
