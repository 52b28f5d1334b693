// Soft mixture of experts (Puigcerver et al. 2023, arXiv 2308.00951, algorithm 1), without a discrete routing
// decision. For each group of tokens, every expert processes a fixed number of mixed inputs (the paper's
// "slots"). A mixed input is a mean of the group's tokens, weighted by a softmax over the tokens. A token's
// output is a mean of the experts' outputs for all mixed inputs, weighted by a softmax over the mixed inputs.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

// A group has S mixed inputs, ordered by expert.
struct SoftExpertsAttrs {
  int64_t rows = 0;  // tokens per group
  int64_t experts = 0;
  bool operator==(const SoftExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("experts", experts);
  }
};

struct SoftDispatch {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;       // [N, d]
    Of<F32> logits;  // [N, S]
    static constexpr std::string_view names = "x logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> slots;    // [groups · S, d]
    Of<I32> experts;  // [groups · S, 1]: the expert of each mixed input
    Of<F32> weights;  // [groups · S, 1]: all ones, for ops that require weights
    static constexpr std::string_view names = "slots experts weights";
  };
  using Attrs = SoftExpertsAttrs;
  static const graph::OpDef def;
};
struct SoftDispatchGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dslots, x;
    Of<F32> logits;
    static constexpr std::string_view names = "dslots x logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    Of<F32> dlogits;
    static constexpr std::string_view names = "dx dlogits";
  };
  using Attrs = SoftExpertsAttrs;
  static const graph::OpDef def;
};

struct SoftCombine {
  template <template <typename> class Of>
  struct In {
    Of<Act> h;       // [groups · S, d]: the experts' outputs
    Of<F32> logits;  // [N, S]
    static constexpr std::string_view names = "h logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, d]
    static constexpr std::string_view names = "y";
  };
  using Attrs = SoftExpertsAttrs;
  static const graph::OpDef def;
};
struct SoftCombineGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, h;
    Of<F32> logits;
    static constexpr std::string_view names = "dy h logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dh;
    Of<F32> dlogits;
    static constexpr std::string_view names = "dh dlogits";
  };
  using Attrs = SoftExpertsAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
