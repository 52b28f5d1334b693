// Experts of a layer that ranks share (expert parallelism): each rank has some of the experts, and tokens are
// sent to the ranks of theirs. N tokens of a rank, each with k experts; R ranks; E experts, E / R on each.
//
//   plan_dispatch   ids, weights        -> way, and of the rows that come: ids, offsets, weights
//   dispatch_rows   x [N, width], way   -> rows [M, width] of this rank's experts
//     ... the experts' matmuls, biases and activations, on rows and pairs (ops/experts/experts.h)
//   combine_rows    rows, way           -> y [N, width]
//
// A token is sent once to each rank that has any of its experts, with their ids and weights. The rank returns
// the sum of their outputs: y[n] is the sum of the ranks' sums in the order of the ranks, in fp32. Dispatch
// and combine are each other's gradient along the same way, which backward saves; combine_slot_grads returns
// the gradients of the weights of token–expert pairs ("pairs" below).
//
// The numbers of rows and pairs from one rank to another in a pass are bounded, so that all sizes are known
// when a program is compiled. A pass takes a range of tokens, the same on all ranks: as many as fit between
// any two of them. If experts are about equally busy the first pass takes all of them; otherwise a loop of
// the program takes the rest, pass by pass (overflow.h). On a rank rows are in the order of their tokens, and
// those of one token in the order of their ranks: no sum, and no bit of a gradient, depends on the number of
// passes.
//
// Placements: rows, pairs and the way of all ranks are concatenated along the axes with separate tokens or
// experts (S0), and equal along the tensor axis, which cuts each expert.
#pragma once

#include <string>
#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

// Capacity of a rank in a pass.
struct PassCapacity {
  int64_t rows = 0, slots = 0;  // from one rank to another
  bool operator==(const PassCapacity&) const = default;
};

// Rows of one token that are summed together, at most.
inline constexpr int64_t kMostRanksOfToken = 256;

struct DispatchAttrs {
  // Experts are sharded over the ranks along `axes`. Experts are also sharded along summed axes, where all
  // ranks have the same tokens: each rank has only the ids of its experts (own_experts) and contributes a
  // term of the sum.
  std::vector<graph::Axis> axes = {}, summed_axes = {};
  int64_t tokens = 0, k = 1, experts = 1, ranks = 1;  // N, k, E, R
  // Above 0: ranks per node. A token is sent once to each node, to the rank at the same position there, which
  // forwards it; on the way back the outputs of a node's ranks are summed there first.
  int64_t node_ranks = 0;
  PassCapacity capacity = {};
  // Ranks that have a part of the global shapes of rows, and of those of tokens; 1 after localize().
  int64_t parts = 1, token_parts = 1;

  int64_t own_experts() const { return experts / ranks; }
  bool by_nodes() const { return node_ranks > 0 && node_ranks < ranks; }
  int64_t hits() const { return std::min(k, own_experts()); }  // pairs of a row at most
  int64_t rows() const { return ranks * capacity.rows; }       // M
  int64_t slots() const { return ranks * capacity.slots; }     // S
  // Whether one pass takes any routing.
  bool takes_any_routing() const { return capacity.rows >= tokens && capacity.slots >= tokens * hits(); }
  bool operator==(const DispatchAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Capacity for `factor` times the rows and pairs of a balanced routing; for all of them if that is less.
PassCapacity pass_capacity(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor);
// Capacity with a factor of 1.25 and four standard deviations of a random routing.
PassCapacity pass_capacity(int64_t tokens, int64_t k, int64_t experts, int64_t ranks);

struct PlanDispatch {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;                   // [N, k]; -1: no expert
    Of<F32> weights;               // [N, k]
    Of<Optional<I32>> begin = {};  // [1]: the pass's first token; absent: 0
    static constexpr std::string_view names = "ids weights begin";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> way;                  // layout: way.h
    Of<I32> ids;                  // [S, 1]: experts of this rank, from 0
    Of<I32> offsets;              // [M + 1]: see ops/experts/experts.h
    Of<F32> weights;              // [S]; 0 for unused pairs
    Of<Optional<I32>> next = {};  // [1], with `begin`: see RemainingTokens
    static constexpr std::string_view names = "way ids offsets weights next";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// Rows without a token are zeros. Rows in codes (ops/quantize) travel with their scales, in one record each.
struct DispatchRows {
  template <template <typename> class Of>
  struct In {
    Of<Any> x;  // [N, width]: activations or codes
    Of<I32> way;
    Of<Optional<Any>> scales = {};  // [N, scales of a row], of codes
    static constexpr std::string_view names = "x way scales";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Any> rows;                       // [M, width]
    Of<Optional<Any>> row_scales = {};  // [M, scales of a row]
    static constexpr std::string_view names = "rows row_scales";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// Writes the tokens of the way's pass. `others`, which the result then replaces, holds those of others.
struct CombineRows {
  template <template <typename> class Of>
  struct In {
    Of<Act> rows;  // [M, width]
    Of<I32> way;
    Of<Optional<Act>> others = {};  // [N, width]
    static constexpr std::string_view names = "rows way others";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, width]
    static constexpr std::string_view names = "y";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// The gradient of plan_dispatch's weights, of the tokens of the way's pass. `others` as above.
struct CombineSlotGrads {
  template <template <typename> class Of>
  struct In {
    Of<F32> grads;  // [S]
    Of<I32> ids;    // [N, k], of tokens
    Of<I32> offsets, way;
    Of<Optional<F32>> others = {};  // [N, k]
    static constexpr std::string_view names = "grads ids offsets way others";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dweights;  // [N, k]
    static constexpr std::string_view names = "dweights";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// The first token after the way's pass; 0 if none remains.
struct RemainingTokens {
  template <template <typename> class Of>
  struct In {
    Of<I32> way;
    static constexpr std::string_view names = "way";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> next;  // [1]
    static constexpr std::string_view names = "next";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// Adds 1 for a way that is not of the first pass, to an accumulator over a step and its ranks.
struct ExpertRounds {
  template <template <typename> class Of>
  struct In {
    Of<I32> way;
    static constexpr std::string_view names = "way";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I64> rounds;  // [1], accumulates
    static constexpr std::string_view names = "rounds";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// Selects the experts to which a rank's tokens may go, if some axes' ranks have the same tokens. Experts are
// distributed along `axes` in their order, the first cutting first; ids of experts of other ranks on a summed
// axis become -1, and the remaining ones are numbered among those of the other axes.
struct OwnExpertsAttrs {
  struct Cut {
    graph::Axis axis = {};
    int64_t ranks = 1;
    bool summed = false;
    bool operator==(const Cut&) const = default;
  };
  std::vector<Cut> axes;
  int64_t experts = 1;  // of all ranks
  bool operator==(const OwnExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
  // The id among the others' experts of expert `id`; -1: of another rank on a summed axis.
  int32_t own(int32_t id, const graph::Coordinates& rank) const;
};
struct OwnExperts {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;   // [N, k]; they differ between the ranks of summed axes
    Of<I32> rank;  // per-rank constants
    static constexpr std::string_view names = "ids rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> own;  // [N, k]
    static constexpr std::string_view names = "own";
  };
  using Attrs = OwnExpertsAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
