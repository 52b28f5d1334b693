// Experts of a layer that ranks share (expert parallelism): each rank has some of the experts, and tokens go
// to the ranks that have theirs. N tokens of a rank, each with k slots; R ranks; E experts, E / R on each.
//
// A token is sent once to each rank that has any of its experts, with the ids and weights of those, and what
// comes back is the sum of what they give: y[n] is the sum of the ranks' sums in the order of the ranks, in
// fp32. Forth and back it goes by rows of the stream's dtype. What a rank does with what has come is its
// body.
//
// Between a rank and another there is room for so many rows and slots at a time, so that all sizes are known
// ahead. Tokens are taken in rounds, a stretch of them each, the same on all ranks: as many as fit between
// any two of them. The first round's values lie in the step's memory; what does not fit, which is nothing
// where experts are about equally busy, is computed in further rounds by the same instruction, and again in
// backward. On a rank rows lie in the order of their tokens' places, of one place in that of the ranks: no
// sum, and no bit of a gradient, depends on how many rounds there are.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

// What a rank has room for in a round.
struct ExpertRoom {
  int64_t rows = 0, slots = 0;  // from one rank to another
  bool operator==(const ExpertRoom&) const = default;
};

// What a body reads: M rows that have come, with S slots.
struct ExpertInputs {
  graph::ValueId rows = graph::kNone;     // [M, width], in the stream's dtype
  graph::ValueId ids = graph::kNone;      // i32[S, 1]: an expert of this rank, from 0
  graph::ValueId offsets = graph::kNone;  // i32[M + 1]: as ops/experts/experts.h has them
  graph::ValueId weights = graph::kNone;  // f32[S], 0 for slots that no row has
  std::vector<graph::ValueId> parameters;
};

// What the experts of one rank do with the rows of a round, and its gradient: a graph of one rank. Immutable.
struct ExpertBody {
  graph::Graph graph;
  ExpertInputs inputs;
  graph::ValueId result = graph::kNone;  // [M, width], what a row's slots give together

  // Where it is differentiated: what I and W begin with and give.
  graph::ValueId result_grad = graph::kNone, rows_grad = graph::kNone, weights_grad = graph::kNone;
  std::vector<graph::ValueId> parameter_grads;
  // What forward leaves for I and W; the part of it that W reads; what I leaves for W.
  std::vector<graph::ValueId> kept, kept_for_weights, handed;
  std::map<graph::ValueId, graph::ValueId> again;  // what backward makes again, and the value that it was
  std::string key;                                 // equal bodies have equal ones, and others differ

  bool trains() const { return result_grad != graph::kNone; }
};

struct ExpertBodySpec {
  int64_t rows = 0, slots = 0, width = 0;  // M, S
  DType dtype = DType::kF32;
  bool trains = false;
  // Adds the parameters that a rank has, in the order in which the node gets them, and what is made of them.
  std::function<std::vector<graph::ValueId>(graph::Graph&)> parameters = {};
  std::function<graph::ValueId(graph::Graph&, const ExpertInputs&)> build = {};
};
std::shared_ptr<const ExpertBody> make_expert_body(const ExpertBodySpec& spec);
// What phases leave for one another, and the key, of a graph that was rewritten.
void list_values(ExpertBody& body);

// Rows of one token that are summed at once, at most.
inline constexpr int64_t kMostRanksOfToken = 256;

struct ExpertParallelAttrs {
  std::shared_ptr<const ExpertBody> body = {};
  // Those who share the experts are the ranks along these axes. Along further axes that cut the
  // experts tokens are the same for all ranks: each has ids of its own experts alone (own_experts), and gives
  // a term of the sum.
  std::vector<graph::Axis> axes = {}, summed_axes = {};
  std::optional<graph::Axis> tensor_axis = {};  // cuts each expert; the body then gives a term of a sum
  // How each parameter lies there.
  std::vector<graph::Placement> on_tensor_axis = {};
  int64_t tokens = 0, k = 1, experts = 1, ranks = 1;  // N, k, E, R
  // Above 0: each so many ranks are a node. A token is sent once to each node, to the rank of the same place
  // there, which passes it on; on its way back what the ranks of a node give is added up there first.
  int64_t node_ranks = 0;
  ExpertRoom room = {};
  int64_t parts = 1;  // ranks that have a part of the global shapes; 1 behind localize()

  int64_t own_experts() const { return experts / ranks; }
  bool by_nodes() const { return node_ranks > 0 && node_ranks < ranks; }
  int64_t hits() const { return std::min(k, own_experts()); }  // slots of a row at most
  int64_t rows() const { return ranks * room.rows; }           // M
  int64_t slots() const { return ranks * room.slots; }         // S
  // Whether any routing is done in one round.
  bool has_room_for_all() const { return room.rows >= tokens && room.slots >= tokens * hits(); }
  bool operator==(const ExpertParallelAttrs& other) const;
  void describe(graph::AttributeText& to) const;
};

// Room for `factor` times the rows and slots of a balanced routing; for all where that is less.
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks, double factor);
// The same with a factor of 1.25 and four standard deviations of a random routing.
ExpertRoom expert_room(int64_t tokens, int64_t k, int64_t experts, int64_t ranks);

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

// Adds the rounds behind the first ones to an accumulator over a step and its ranks.
struct ExpertRounds {
  template <template <typename> class Of>
  struct In {
    Of<I32> end;  // as ExpertParallel gives it, of all ranks
    static constexpr std::string_view names = "end";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I64> rounds;  // [1], accumulates
    static constexpr std::string_view names = "rounds";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct ExpertParallel {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                 // [N, width]
    Of<I32> ids;               // [N, k]; -1: a slot that goes nowhere
    Of<F32> weights;           // [N, k]
    Of<Many<Any>> parameters;  // of the body
    static constexpr std::string_view names = "x ids weights parameters";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, width]
    // [2], the first token of the second round, and how many rounds follow the first; only where the body
    // trains.
    Of<Optional<I32>> end = {};
    Of<Many<Any>> kept;  // of the body
    static constexpr std::string_view names = "y end kept";
  };
  using Attrs = ExpertParallelAttrs;
  static const graph::OpDef def;
};
struct ExpertParallelGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    Of<I32> ids;
    Of<F32> weights;
    Of<I32> end;
    // Its parameters, then lists of it: kept; or kept_for_weights and handed.
    Of<Many<Any>> of_body;
    static constexpr std::string_view names = "dy x ids weights end of_body";
  };
  using Attrs = ExpertParallelAttrs;
};
struct ExpertParallelGradInput : ExpertParallelGrad {
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    Of<F32> dweights;
    Of<Many<Any>> handed;  // of the body
    static constexpr std::string_view names = "dx dweights handed";
  };
  static const graph::OpDef def;
};
struct ExpertParallelGradWeight : ExpertParallelGrad {
  template <template <typename> class Of>
  struct Out {
    Of<Many<F32>> dw;  // of the parameters; accumulate
    static constexpr std::string_view names = "dw";
  };
  static const graph::OpDef def;
};
struct ExpertParallelResult {
  graph::ValueId y, end;  // end: kNone where the body does not train
};
ExpertParallelResult expert_parallel(graph::Graph& graph, graph::ValueId x, graph::ValueId ids,
                                     graph::ValueId weights, const std::vector<graph::ValueId>& parameters,
                                     ExpertParallelAttrs attrs);

}  // namespace strata::ops
