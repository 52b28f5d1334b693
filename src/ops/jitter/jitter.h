// Noise on what a router reads while it trains (Switch Transformers, arXiv 2101.03961, §2.2).
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct JitterAttrs {
  double eps = 0;
  int64_t stream = 0;  // of random numbers: one a layer
  bool operator==(const JitterAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("stream", stream);
  }
};
// y = x · (1 − eps + 2 eps u), u uniform in [0, 1): a pure function of the random stream and of a row's
// position. Its own gradient.
struct Jitter {
  template <template <typename> class Of>
  struct In {
    Of<F32> x;       // [N, d]
    Of<I32> places;  // [N, 2]: the number of a row's sample, and its place there
    static constexpr std::string_view names = "x places";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> y;  // [N, d]
    static constexpr std::string_view names = "y";
  };
  using Attrs = JitterAttrs;
  static const graph::OpDef def;
};

struct SamplePlacesAttrs {
  int64_t rows = 0;  // of a sample
  bool operator==(const SamplePlacesAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("rows", rows); }
};
// For each row of samples of `rows` rows: the sample's number and the position in it.
struct SamplePlaces {
  template <template <typename> class Of>
  struct In {
    Of<I32> samples;  // [sequences]
    static constexpr std::string_view names = "samples";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> places;  // [sequences · rows, 2]
    static constexpr std::string_view names = "places";
  };
  using Attrs = SamplePlacesAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
