// Products of a mixture of experts (grouped GEMMs). N tokens, each with k slots; ids[N, k] says which of the
// E experts a slot goes to. The weights of all experts are one matrix w[E · O, K], expert by expert. What
// lies between the products has a row a slot, [N · k, …], row n · k + s for slot s of token n, so that a part
// of the tokens is a part of the rows; that rows are brought together by expert is a kernel's own business.
// An expert may have no slot, and a slot no expert: its id is -1, its row of a product 0.
//
// Where tokens have any number of slots (of the tokens that other ranks have sent), offsets i32[N + 1] say
// which: token n's are [offsets[n], offsets[n + 1]), ids is i32[S, 1] with room for S of them, and S stands
// for N · k below. Rows of slots that no token has are zeros.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

struct ExpertsAttrs {
  int64_t experts = 0;
  // Of tokens with offsets, which are those that have come to a rank: the ranks whose tokens are one behind
  // the other in the global shapes, 1 after localize(), and of their slots how many are in use where experts
  // are equally busy; 0: all.
  int64_t parts = 1, busy_slots = 0;
  // Along these axes each rank has some of the experts whole, and the tokens of those.
  std::vector<graph::Axis> dealt_axes = {};
  // Along it the result is a sum of the ranks' terms, and each adds its share of biases.
  std::optional<graph::Axis> terms_axis = {};
  bool operator==(const ExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Checks the shapes of ids and of offsets, nullptr where there are none.
void require_slots(const graph::NodeView& node, const ExpertsAttrs& attrs, const graph::Value& ids,
                   const graph::Value* offsets);
template <typename Op>
void require_slots(const graph::View<Op>& node) {
  require_slots(node.untyped(), node.attrs, *node.in.ids, node.in.offsets.value);
}
template <typename Op>
int64_t slots_of(const graph::View<Op>& node) {
  return node.in.ids->shape.elements();
}
// How a weight, or its gradient's terms, lie along an axis along which tokens are split.
inline bool is_dealt(const ExpertsAttrs& attrs, graph::Axis axis) {
  return std::find(attrs.dealt_axes.begin(), attrs.dealt_axes.end(), axis) != attrs.dealt_axes.end();
}
// The attributes on a rank.
ExpertsAttrs experts_of_rank(const ExpertsAttrs& attrs, const graph::Mesh& mesh);
template <typename Op>
ExpertsAttrs localize_experts(const graph::View<Op>& node) {
  return experts_of_rank(node.attrs, node.graph.mesh());
}
// The segments of all experts' outputs along a parameter's first dimension.
std::vector<int64_t> segments_of_all(const ExpertsAttrs& attrs, const graph::Value& outputs);
// N.
template <typename Op>
int64_t tokens_of(const graph::View<Op>& node) {
  return node.in.offsets ? node.in.offsets->shape[0] - node.attrs.parts : node.in.ids->shape[0];
}

struct ExpertsProduct {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                       // a row a token, or a row a slot; K columns
    Of<I32> ids;                     // [N, k]
    Of<Weight> weight;               // [E · O, K]
    Of<Optional<I32>> offsets = {};  // [N + 1]
    static constexpr std::string_view names = "x ids weight offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // the other way round; O columns
    static constexpr std::string_view names = "y";
  };
  using Attrs = ExpertsAttrs;
};
struct ExpertsGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;
    Of<I32> ids;
    Of<Weight> weight;
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy ids weight offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    static constexpr std::string_view names = "dx";
  };
  using Attrs = ExpertsAttrs;
};
struct ExpertsGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    Of<I32> ids;
    Of<Optional<I32>> offsets = {};
    static constexpr std::string_view names = "dy x ids offsets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;  // [E · O, K], accumulates
    static constexpr std::string_view names = "dw";
  };
  using Attrs = ExpertsAttrs;
};

// y[N · k, O]: row n · k + s = w[ids[n, s]] · x[n], of x[N, K].
struct ExpertsIn : ExpertsProduct {
  static const graph::OpDef def;
};
struct ExpertsInGradInput : ExpertsGradInput {
  static const graph::OpDef def;
};
struct ExpertsInGradWeight : ExpertsGradWeight {
  static const graph::OpDef def;
};
// y[N, O]: row n = the sum over s of w[ids[n, s]] · x[n · k + s], of x[N · k, K]; sums in fp32.
struct ExpertsOut : ExpertsProduct {
  static const graph::OpDef def;
};
struct ExpertsOutGradInput : ExpertsGradInput {
  static const graph::OpDef def;
};
struct ExpertsOutGradWeight : ExpertsGradWeight {
  static const graph::OpDef def;
};

// Slots that went to each expert, an accumulator over a step. With targets those of tokens that have one:
// rows that only fill a batch up have none, and must not move what balances experts.
struct ExpertCounts {
  template <template <typename> class Of>
  struct In {
    Of<I32> ids;                     // [N, k]
    Of<Optional<I32>> targets = {};  // [N]
    static constexpr std::string_view names = "ids targets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I64> counts;  // [E], accumulates
    static constexpr std::string_view names = "counts";
  };
  using Attrs = ExpertsAttrs;
  static const graph::OpDef def;
};
void count_experts(graph::Graph& graph, graph::ValueId ids, graph::ValueId targets, graph::ValueId counts);

// What an accumulator of counts has at this place of a micro-batch.
struct RunningCounts {
  template <template <typename> class Of>
  struct In {
    Of<I64> counts;  // [E]
    static constexpr std::string_view names = "counts";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> now;  // [1, E]
    static constexpr std::string_view names = "now";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
