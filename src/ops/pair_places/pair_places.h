// The places in the data of token–expert pairs (ops/experts), from which random bits of their rows follow.
#pragma once

#include <vector>

#include "graph/placement.h"
#include "ops/experts/experts.h"

namespace strata::ops {

struct PairPlacesAttrs : ExpertsAttrs {
  // Along these axes, in their order, ranks have whole experts.
  struct Cut {
    graph::Axis axis = {};
    int64_t ranks = 1;
    bool operator==(const Cut&) const = default;
  };
  std::vector<Cut> cuts = {};
  int64_t all_experts = 0;  // of all ranks, also after localize()
  bool operator==(const PairPlacesAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
  // The number among all experts of the first one of a rank that has `experts`.
  int64_t first_expert(const graph::Coordinates& rank) const;
};

// Of pair s of a token at place p of sample i with expert e: i and p · all_experts + e, whichever rank has the expert
// and in which pass. Pairs without an expert, and unused ones: 0 and 0.
struct PairPlaces {
  template <template <typename> class Of>
  struct In {
    Of<I32> places;  // [N, 2] of tokens, as SamplePlaces makes them
    Of<I32> ids;     // [N, k], or [S, 1] with offsets: see experts.h
    Of<Optional<I32>> offsets = {};
    Of<Optional<I32>> rank = {};  // [axes], with cuts
    static constexpr std::string_view names = "places ids offsets rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> of_pairs;  // [S, 2]
    static constexpr std::string_view names = "of_pairs";
  };
  using Attrs = PairPlacesAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
