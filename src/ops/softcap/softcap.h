// Capped logits of a generating program (Gemma 2, arXiv 2408.00118); no gradient.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct SoftcapAttrs {
  double softcap = 1;
  bool operator==(const SoftcapAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("softcap", softcap); }
};

// y = cap · tanh(x / cap); y may be x itself
struct Softcap {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> y;
    static constexpr std::string_view names = "y";
  };
  using Attrs = SoftcapAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
