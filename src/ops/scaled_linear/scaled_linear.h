// The matmuls of a linear layer on quantised operands (ops/quantize). The number that a code stands for is code ·
// scale; products of two such numbers are summed in fp32.
//
// An operand is stored as it was quantised: with the dimension that the matmul sums over last, or first ("across": read
// in the other direction than it was quantised along, which scales of squares and of whole tensors allow).
#pragma once

#include "ops/quantize/quantize.h"
#include "quantize/partial_sums.h"

namespace strata::ops {

struct ScaledOperandAttrs {
  quantize::ScaleRule rule;
  bool across = false;
  bool operator==(const ScaledOperandAttrs&) const = default;
};

using quantize::PartialSums;

struct ScaledAttrs {
  ScaledOperandAttrs first, second;
  DType out = DType::kF32;
  PartialSums sums = PartialSums::kF32;
  bool operator==(const ScaledAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// y = x · weightᵀ (+ bias)
struct ScaledLinear {
  template <template <typename> class Of>
  struct In {
    Of<Any> x, x_scales;                // [N, K]
    Of<Any> weight, weight_scales;      // [O, K]
    Of<Optional<F32>> x_greatest = {};  // [1, 1], of nvfp4
    Of<Optional<F32>> weight_greatest = {};
    Of<Optional<F32>> bias = {};  // [O]
    static constexpr std::string_view names =
        "x x_scales weight weight_scales x_greatest weight_greatest bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, O]
    static constexpr std::string_view names = "y";
  };
  using Attrs = ScaledAttrs;
  static const graph::OpDef def;
};

// dx = dy · weight
struct ScaledLinearGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Any> dy, dy_scales;          // [N, O]
    Of<Any> weight, weight_scales;  // [K, O], or [O, K] across
    Of<Optional<F32>> dy_greatest = {};
    Of<Optional<F32>> weight_greatest = {};
    static constexpr std::string_view names = "dy dy_scales weight weight_scales dy_greatest weight_greatest";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // [N, K]
    static constexpr std::string_view names = "dx";
  };
  using Attrs = ScaledAttrs;
  static const graph::OpDef def;
};

// dw = dyᵀ · x
struct ScaledLinearGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Any> dy, dy_scales;  // [O, N], or [N, O] across
    Of<Any> x, x_scales;    // [K, N], or [N, K] across
    Of<Optional<F32>> dy_greatest = {};
    Of<Optional<F32>> x_greatest = {};
    static constexpr std::string_view names = "dy dy_scales x x_scales dy_greatest x_greatest";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [O, K], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = ScaledAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
