// Routing on two levels (Shazeer et al. 2017, appendix B): a group of experts first, then an expert of it.
// The probability of an expert is its group's times its own within the group; as logits these are
//   y[n, e] = log softmax(groups[n])[g] + log softmax(logits[n] of group g)[e],  g the group of e,
// whose softmax is that probability, so that the nodes after it route as usual.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct TwoLevelLogits {
  template <template <typename> class Of>
  struct In {
    Of<F32> groups;  // [N, G]
    Of<F32> logits;  // [N, E], E a multiple of G: expert e is in group e / (E / G)
    static constexpr std::string_view names = "groups logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> y;  // [N, E]
    static constexpr std::string_view names = "y";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
struct TwoLevelLogitsGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dy, groups, logits;
    static constexpr std::string_view names = "dy groups logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dgroups, dlogits;
    static constexpr std::string_view names = "dgroups dlogits";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
