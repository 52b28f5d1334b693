// What an update knows of the whole step: norms over all tensors, and the scalars that optimizers read.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// partials[i] = Σ x² over the i-th kNormBlock elements
struct SumOfSquares {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> partials;  // [ceil(n / kNormBlock)]
    static constexpr std::string_view names = "partials";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct PartialsIn {
  template <template <typename> class Of>
  struct In {
    Of<Many<F64>> partials;
    static constexpr std::string_view names = "partials";
  };
};
// What ranks have of a norm, before it is added up over them.
struct SumOfPartials : PartialsIn {
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;  // [1]
    static constexpr std::string_view names = "sum";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
struct RootOfSum : PartialsIn {
  template <template <typename> class Of>
  struct Out {
    Of<F32> norm;  // [1]
    static constexpr std::string_view names = "norm";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// norm = √Σ partials / token_count, loss = loss_sum / token_count. The one place that decides whether and how
// a step's update is made (guard.h). The gradients, which are sums over tokens, are clipped as
// torch.nn.utils.clip_grad_norm_ does. Without a valid target, or with a loss or norm that is not finite, no
// update is made.
// With `loss_scale` the gradients are those of loss · loss_scale (loss_scale.h): it is taken out of the norm
// and of the scalars, so of everything that follows, and the scale of the next step is written.
struct StepScalars {
  template <template <typename> class Of>
  struct In {
    Of<U8> hyper;  // an UpdateHyper
    Of<I64> token_count;
    Of<F64> loss_sum;
    Of<I64> updates;
    Of<U8> history;                     // [sizeof(GuardHistory)]
    Of<Many<F64>> partials;             // of the gradients' squares
    Of<Optional<F32>> loss_scale = {};  // [1]
    static constexpr std::string_view names =
        "hyper token_count loss_sum updates history partials loss_scale";
  };
  template <template <typename> class Of>
  struct Out {
    Of<U8> scalars;            // [kScalarBytes], an UpdateScalars
    Of<U8> embedding_scalars;  // the same for embeddings, whose gradients may be shrunk
    Of<F32> norm;
    Of<I64> updates;
    Of<U8> history;
    Of<U8> decision;                    // [sizeof(GuardDecision)]
    Of<Optional<F32>> loss_scale = {};  // [1], of the next step
    static constexpr std::string_view names =
        "scalars embedding_scalars norm updates history decision loss_scale";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::optim
