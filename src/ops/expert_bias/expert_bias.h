// Biases of experts, b[E · C], concatenated. Without weights x has one row per token–expert pair: y = x + the
// bias of the pair's expert. With weights x has one row per token: y = x + the sum over its pairs of weight ·
// bias. A pair without an expert or a token adds nothing. Pairs and offsets are those of experts/experts.h.
#pragma once

#include "ops/experts/experts.h"

namespace strata::ops {

struct ExpertBias {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                       // [N · k, C], with weights [N, C]
    Of<I32> ids;                     // [N, k]
    Of<Optional<F32>> weights = {};  // [N, k], with offsets [S]
    Of<F32> bias;                    // [E · C]
    Of<Optional<I32>> offsets = {};  // [N + 1]
    static constexpr std::string_view names = "x ids weights bias offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // as x
    static constexpr std::string_view names = "y";
  };
  using Attrs = ExpertsAttrs;
  static const graph::OpDef def;
};
struct ExpertBiasGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;
    Of<I32> ids;
    Of<Optional<F32>> weights = {};
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy ids weights offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dbias;  // accumulates
    static constexpr std::string_view names = "dbias";
  };
  using Attrs = ExpertsAttrs;
  static const graph::OpDef def;
};
struct ExpertBiasGradWeights {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;  // [N, C]
    Of<I32> ids;
    Of<F32> bias;
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy ids bias offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dweights;
    static constexpr std::string_view names = "dweights";
  };
  using Attrs = ExpertsAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
