// Bias of attention scores by distance: one number a head for each bucket of distances (Raffel et al. 2020,
// "Exploring the limits of transfer learning"). Near distances have a bucket each, farther ones share, on a
// logarithmic scale up to max_distance. In one direction all keys after the query have bucket 0.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

// Distances d = key − query in [first, last].
struct RelativeBiasAttrs {
  int64_t max_distance = 128;
  bool bidirectional = true;
  int64_t first = 0;
  int64_t last = 0;
  int64_t buckets = 0;  // of the table, for the gradient, which does not read it
  bool operator==(const RelativeBiasAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("max_distance", max_distance);
    to("bidirectional", bidirectional);
    to("first", first);
    to("last", last);
    if (buckets != 0) to("buckets", buckets);
  }
};

// bias[h, d - first] = table[bucket(d), h]
struct RelativeBias {
  template <template <typename> class Of>
  struct In {
    Of<F32> table;  // [buckets, heads]
    static constexpr std::string_view names = "table";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> bias;  // [heads, distances]
    static constexpr std::string_view names = "bias";
  };
  using Attrs = RelativeBiasAttrs;
  static const graph::OpDef def;
};

struct RelativeBiasGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dbias;  // [heads, distances]
    static constexpr std::string_view names = "dbias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dtable;  // [buckets, heads]; accumulates
    static constexpr std::string_view names = "dtable";
  };
  using Attrs = RelativeBiasAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
