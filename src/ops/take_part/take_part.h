// A rank's part of a vector with a number per head, for ranks of an axis that share heads only in attention
// (Jacobs et al. 2023, "DeepSpeed Ulysses").
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct TakePartAttrs {
  graph::Axis axis = {};
  int64_t ranks = 1;  // along it; 1 before localize()
  bool operator==(const TakePartAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("ranks", ranks);
  }
};

// part[i] = x[r · n/R + i] on rank r of R; x is a parameter that all ranks of the axis have.
struct TakePart {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;     // [n]
    Of<I32> rank;  // per-rank constants
    static constexpr std::string_view names = "x rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> part;  // [n/R]
    static constexpr std::string_view names = "part";
  };
  using Attrs = TakePartAttrs;
  static const graph::OpDef def;
};

struct TakePartGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dy;  // [n/R]
    Of<I32> rank;
    static constexpr std::string_view names = "dy rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dx;  // [n], a term of a sum over the ranks; accumulates
    static constexpr std::string_view names = "dx";
  };
  using Attrs = TakePartAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
