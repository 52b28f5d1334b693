// Experts of bounded capacity. Of each group of tokens an expert takes at most `capacity` token–expert pairs
// ("pairs" below). The excess is dropped: no expert gets those pairs, and their weight is 0.
#pragma once

#include "ops/router/router.h"

namespace strata::ops {

struct CapacityAttrs {
  // The pairs of an overfull expert that stay: the first in the order of tokens, or those with the greatest
  // scores (among equal ones the first).
  enum class Keep : uint8_t { kFirst, kGreatest };
  int64_t experts = 0;
  int64_t rows = 0;      // tokens of a group
  int64_t capacity = 0;  // pairs of a group that an expert takes
  Keep keep = Keep::kFirst;
  IdleRows idle = {};  // have no pairs and use no capacity
  bool operator==(const CapacityAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("experts", experts);
    to("rows", rows);
    to("capacity", capacity);
    to("keep", static_cast<int64_t>(keep));
    idle.describe(to);
  }
};

// The ids, with -1 for dropped pairs. A pair whose score is NaN is never dropped, so that the loss shows it.
struct LimitExperts {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;      // [N, k]
    Of<F32> weights;  // [N, k]: scores
    // [N]: where in its sequence a token's document begins; with Keep::kFirst every document has the full
    // capacity.
    Of<Optional<I32>> begins = {};
    static constexpr std::string_view names = "ids weights begins";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> kept;  // [N, k]
    static constexpr std::string_view names = "kept";
  };
  using Attrs = CapacityAttrs;
  static const graph::OpDef def;
};

// The weights, 0 if an id is -1. Its own gradient.
struct WeightsOfKept {
  template <template <typename> class Of>
  struct In {
    Of<F32> weights;  // [N, k]
    Of<I32> ids;      // [N, k]
    static constexpr std::string_view names = "weights ids";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> kept;  // [N, k]
    static constexpr std::string_view names = "kept";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
