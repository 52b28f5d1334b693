// Moving a value from one placement to another: the only nodes that do.
//
//   P → R  all-reduce       P → S  reduce-scatter
//   S → R  all-gather       S → S  all-to-all
//   R → S  each rank takes its part of the whole
//   R → R  nothing, but a partial gradient becomes whole on its way back
//   shift  shards go round: each rank gets that of another; no gradient passes
//
// The gradient of a reshard is its conjugate: the input's gradient has the input's placement, and that of a
// partial sum is whole (all ranks' terms have one gradient).
#pragma once

#include "graph/op.h"
#include "graph/shard.h"
#include "graph/signature.h"

namespace strata::graph {

// How one operand of a reshard is cut, if it is sharded, before and after; empty before localize(), while
// shapes are global.
struct ReshardCuts {
  Cut from, to;
  bool operator==(const ReshardCuts&) const = default;
};

// One node may move several values alike: output i is input i, moved. `ranks` is the size of the axis on a
// rank, and 1 before localize().
struct ReshardAttrs {
  Axis axis = {};
  Placement from, to;
  int64_t ranks = 1;
  std::vector<ReshardCuts> cuts = {};  // by operand
  // Coordinates on the axis of those that take part, ascending; empty: all.
  std::vector<int32_t> among = {};
  int64_t sequence = 0;  // of the rows, dimension 0, if they are sharded: see Cut
  int64_t shift = 0;     // from == to, shards: a rank gets the shard of the rank this many places before it
  bool operator==(const ReshardAttrs&) const = default;
  void describe(AttributeText& to_text) const;
};

// Runs on the communication queue.
struct Reshard {
  template <template <typename> class Of>
  struct In {
    Of<Many<Any>> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Many<Any>> moved;
    static constexpr std::string_view names = "moved";
  };
  using Attrs = ReshardAttrs;
  static const OpDef def;
};
// R → S of one value.
struct TakeShard {
  template <template <typename> class Of>
  struct In {
    Of<Any> x;
    Of<I32> rank;  // [axes]
    static constexpr std::string_view names = "x rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Any> moved;
    static constexpr std::string_view names = "moved";
  };
  using Attrs = ReshardAttrs;
  static const OpDef def;
};

// x with placement `to` on an axis; x itself if it has that placement already or the axis has one rank.
// `sequence`: how rows are cut if they are sharded, see Cut.
ValueId reshard(Graph& graph, ValueId x, Axis axis, Placement to, int64_t sequence = 0);
// Shifts shards of `values`, which have the same placement on the axis, in one call: each rank gets those of
// the rank `places` before it, cyclically. On the whole this permutes their order.
std::vector<ValueId> shift_shards(Graph& graph, std::vector<ValueId> values, Axis axis, int64_t places);
// x with its partial sums added up, on every axis.
ValueId sum_over_ranks(Graph& graph, ValueId x);
// Sums several values, with one node per axis for those that have equal placements on the other axes.
std::vector<ValueId> sum_over_ranks(Graph& graph, std::vector<ValueId> values);
// Sums x, a partial sum on an axis among only some of its ranks, which include this one.
ValueId sum_among(Graph& graph, ValueId x, Axis axis, std::vector<int32_t> among);
// Like sum_over_ranks(), but leaves shards on the axes on which `like` is sharded, cut like `like`.
// If `holders` are given, x is a partial sum among these places on the pipeline axis.
ValueId reduce_like(Graph& graph, ValueId x, ValueId like, const std::vector<int32_t>& holders = {});
// x, which is replicated there. Its gradient may be a partial sum on that axis, and is then reduced: what
// shards of a weight read passes here first.
ValueId enter_shards(Graph& graph, ValueId x, Axis axis);

// Each rank has its own x, a term of a sum on the axis; nothing where the axis has one rank.
void set_partial(Graph& graph, ValueId x, Axis axis);

// This rank's coordinates, i32[axes], "rank": the per-rank constants, which the host writes once.
ValueId rank_block(Graph& graph);
// A shape_error where the input is not one.
void require_rank_block(const NodeView& view, const Value& rank);

// Removes nodes R → R: they have done their work when gradients are there.
void drop_identities_pass(Graph& graph);

}  // namespace strata::graph
