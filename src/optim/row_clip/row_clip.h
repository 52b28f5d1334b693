// Adaptive gradient clipping (Brock et al. 2021, arXiv 2102.06171): the gradient of each row of a matrix, which makes one
// output, is limited relative to the row's weights.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// squares[r] = Σ x² over row r
struct RowSquares {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;  // [R, C]
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> squares;  // [R]
    static constexpr std::string_view names = "squares";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// Norms of rows without weights: all that begin as zeros could never grow otherwise. The paper's value.
inline constexpr double kLeastRowNorm = 1e-3;

struct RowClipAttrs {
  double limit = 0;  // above 0
  bool operator==(const RowClipAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("limit", limit); }
};

// gradient[r] *= min(1, limit · max(|weights[r]|, kLeastRowNorm) / (|gradient[r]| · grad_scale)), with the norms' squares
// given: the gradient of which the optimizer takes its mean is the one that is limited.
struct ClipRows {
  template <template <typename> class Of>
  struct In {
    Of<F32> gradient;          // [R, C]
    Of<F64> gradient_squares;  // [R]
    Of<F64> weight_squares;    // [R]
    Of<U8> scalars;            // an UpdateScalars
    static constexpr std::string_view names = "gradient gradient_squares weight_squares scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> gradient;
    static constexpr std::string_view names = "gradient";
  };
  using Attrs = RowClipAttrs;
  static const graph::OpDef def;
};

// The factor on a row's gradient.
double row_factor(double limit, double gradient_squares, double weight_squares, double grad_scale);

// Clips the gradient of a matrix in place; does nothing to other parameters. Sums of rows that are cut are added up over the
// ranks.
void clip_rows(graph::Graph& graph, graph::ValueId parameter, graph::ValueId gradient, graph::ValueId scalars,
               double limit);

}  // namespace strata::optim
