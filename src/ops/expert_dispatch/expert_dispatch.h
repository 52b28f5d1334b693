// Experts of a layer that ranks share (expert parallelism): each rank has some of the experts, and tokens go
// to the ranks that have theirs. N tokens of a rank, each with k slots; R ranks; E experts, E / R on each.
//
//   plan_dispatch   ids, weights        -> way, and of the rows that come: ids, offsets, weights
//   dispatch_rows   x [N, width], way   -> rows [M, width] of this rank's experts
//     ... the experts' matmuls, biases and activations, on rows and slots (ops/experts/experts.h)
//   combine_rows    rows, way           -> y [N, width]
//
// A token is sent once to each rank that has any of its experts, with the ids and weights of those, and what
// comes back is the sum of what they give: y[n] is the sum of the ranks' sums in the order of the ranks, in
// fp32. Dispatch and combine are each other's gradient along the same way, which backward keeps;
// combine_slot_grads takes the gradients of slots' weights back.
//
// From one rank to another there is room for so many rows and slots in a pass, so that all sizes are known
// when a program is made. A pass takes a range of tokens, the same on all ranks: as many as fit between any
// two of them. Where experts are about equally busy the first pass takes all of them; else a loop of the
// program takes the rest, pass by pass (overflow.h). On a rank rows are in the order of their tokens, and
// those of one token in that of their ranks: no sum, and no bit of a gradient, depends on how many passes
// there are.
//
// Placements: rows, slots and the way are one behind the other of all ranks along the axes that have tokens
// or experts of their own (S0), and alike along the tensor axis, which cuts each expert.
#pragma once

#include <string>
#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

// What a rank has room for in a pass.
struct ExpertRoom {
  int64_t rows = 0, slots = 0;  // from one rank to another
  bool operator==(const ExpertRoom&) const = default;
};

// Rows of one token that are summed at once, at most.
inline constexpr int64_t kMostRanksOfToken = 256;

struct DispatchAttrs {
  // Those who share the experts are the ranks along `axes`. Along summed axes, which cut the experts too,
  // tokens are the same for all ranks: each has ids of its own experts alone (own_experts), and gives a term
  // of the sum.
  std::vector<graph::Axis> axes = {}, summed_axes = {};
  int64_t tokens = 0, k = 1, experts = 1, ranks = 1;  // N, k, E, R
  // Above 0: each so many ranks are a node. A token is sent once to each node, to the rank of the same place
  // there, which passes it on; on its way back what the ranks of a node give is added up there first.
  int64_t node_ranks = 0;
  ExpertRoom room = {};
  // Ranks that have a part of the global shapes of rows, and of those of tokens; 1 after localize().
  int64_t parts = 1, token_parts = 1;

  int64_t own_experts() const { return experts / ranks; }
  bool by_nodes() const { return node_ranks > 0 && node_ranks < ranks; }
  int64_t hits() const { return std::min(k, own_experts()); }  // slots of a row at most
  int64_t rows() const { return ranks * room.rows; }           // M
  int64_t slots() const { return ranks * room.slots; }         // S
  // Whether one pass takes any routing.
  bool has_room_for_all() const { return room.rows >= tokens && room.slots >= tokens * hits(); }
  bool operator==(const DispatchAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Room for `factor` times the rows and slots of a balanced routing; for all where that is less.
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor);
// The same with a factor of 1.25 and four standard deviations of a random routing.
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks);

struct PlanDispatch {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;                   // [N, k]; -1: a slot that goes nowhere
    Of<F32> weights;               // [N, k]
    Of<Optional<I32>> begin = {};  // [1]: the pass's first token; absent: 0
    static constexpr std::string_view names = "ids weights begin";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> way;                  // way.h says what lies where
    Of<I32> ids;                  // [S, 1]: experts of this rank, from 0
    Of<I32> offsets;              // [M + 1]: as ops/experts/experts.h has them
    Of<F32> weights;              // [S]; 0 for slots that no row has
    Of<Optional<I32>> next = {};  // [1], beside `begin`: as RemainingTokens has it
    static constexpr std::string_view names = "way ids offsets weights next";
  };
  using Attrs = DispatchAttrs;
  static const graph::OpDef def;
};

// Rows without a token are zeros.
struct DispatchRows {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;  // [N, width]
    Of<I32> way;
    static constexpr std::string_view names = "x way";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> rows;  // [M, width]
    static constexpr std::string_view names = "rows";
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

// The first token after the way's pass; 0 where none is left.
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

// Which experts a rank's tokens may go to where some axes' ranks have the same tokens. Experts are dealt out
// along `axes` in their order, the first cutting first; ids of those who differ from this rank on a summed
// axis become -1, and what is left is counted among those of the other axes.
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
    Of<I32> rank;  // the rank block
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
