// Soft mixtures of experts (Puigcerver et al. 2023, arXiv 2308.00951, algorithm 1): nothing is chosen. Each
// expert has some mixed inputs for a group of tokens (the paper's "slots"): means of the group's tokens,
// weighted by a softmax over these. A token's result is a mean of all their results, weighted by a softmax
// over them.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

// S mixed inputs of a group, consecutive for each expert.
struct SoftExpertsAttrs {
  int64_t rows = 0;  // tokens of a group
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
    Of<I32> experts;  // [groups · S, 1]: the mixed input's expert
    Of<F32> weights;  // [groups · S, 1]: 1 each, for ops that need weights
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
    Of<Act> h;       // [groups · S, d]: results of the mixed inputs
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
