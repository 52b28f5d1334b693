// Experts with room for a bounded number of tokens. Of each group of tokens an expert takes at most so many
// slots; those that are over are dropped: no expert gets them, and their weight is 0.
#pragma once

#include "ops/router/router.h"

namespace strata::ops {

struct CapacityAttrs {
  // Which slots of an expert that has too many stay: the first in the order of tokens, or those with the
  // greatest scores (of equal ones the first).
  enum class Keep : uint8_t { kFirst, kGreatest };
  int64_t experts = 0;
  int64_t rows = 0;      // tokens of a group
  int64_t capacity = 0;  // slots of a group that an expert has room for
  Keep keep = Keep::kFirst;
  IdleRows idle = {};  // have no slots, and take no room
  bool operator==(const CapacityAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("experts", experts);
    to("rows", rows);
    to("capacity", capacity);
    to("keep", static_cast<int64_t>(keep));
    idle.describe(to);
  }
};

// The ids, with -1 where a slot is dropped. A slot whose score is not a number is never dropped, so that the
// loss shows it.
struct LimitExperts {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;      // [N, k]
    Of<F32> weights;  // [N, k]: scores
    // [N]: where in its sequence a token's document begins; with Keep::kFirst every document finds all the
    // room.
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

// The weights, 0 where an id is -1. Its own gradient.
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
