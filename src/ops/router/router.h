// Routes tokens to experts, with a weight for each, and balances the experts' load. N tokens, E experts, k of
// them a token, G groups of tokens. Logits, scores and weights are fp32 whatever the activations are.
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct CastAttrs {
  DType dtype = DType::kF32;
  bool operator==(const CastAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("dtype", name_of(dtype)); }
};
// The same number in another type, and its gradient back.
struct Cast {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> cast;
    static constexpr std::string_view names = "cast";
  };
  using Attrs = CastAttrs;
  static const graph::OpDef def;
};
// x itself if it has the type.
graph::ValueId cast(graph::Graph& graph, graph::ValueId x, DType dtype);

// The last `count` of each `sequence` rows, which only fill sequences up to what ranks can share.
struct IdleRows {
  int64_t sequence = 1, count = 0;
  bool has(int64_t row) const { return row % sequence >= sequence - count; }
  bool operator==(const IdleRows&) const = default;
  void describe(graph::AttributeText& to) const {
    if (count > 0) to("idle_rows", count);
  }
};

// Scores s of an expert from its logit; the k experts with the greatest s + bias are chosen (of equal ones
// the first), and their weights are s, divided by their sum if `normalize` is set, times `scale`. The bias
// chooses and never weighs (DeepSeek-V3, arXiv 2412.19437, §2.1.2). A token with a logit that is not finite
// goes to some k experts with NaN as weights, so that the loss shows it. With groups of experts only those of
// the `kept_groups` best groups are chosen from.
struct RouteAttrs {
  enum class Score : uint8_t { kSoftmax, kSigmoid };
  // What a group counts: its best expert (DeepSeek-V2), its best two together (V3), or all.
  enum class GroupScore : uint8_t { kBest, kBestTwo, kSum };
  int64_t k = 1;
  Score score = Score::kSoftmax;
  bool normalize = false;
  double normalize_eps = 0;  // added to the sum that normalizes
  double scale = 1;
  int64_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::kBest;
  // Choice s of token n is expert (n · k + s) mod E whatever the logits are: for benchmarks.
  bool force_balanced = false;
  // If tokens are given, they choose instead of the logits, which weigh: choice s is the (r mod (E − s))-th
  // of the remaining experts, r the first number that philox draws of this random stream at counter token and
  // high counter s (hash layers, Roller et al. 2021, arXiv 2106.04426).
  int64_t hash_stream = 0;
  bool operator==(const RouteAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("k", k);
    to("score", static_cast<int64_t>(score));
    to("normalize", normalize);
    to("normalize_eps", normalize_eps);
    to("scale", scale);
    if (groups > 1) {
      to("groups", groups);
      to("kept_groups", kept_groups);
      to("group_score", static_cast<int64_t>(group_score));
    }
    if (force_balanced) to("force_balanced", force_balanced);
    if (hash_stream != 0) to("hash_stream", hash_stream);
  }
};
struct Route {
  template <template <typename> class Of>
  struct In {
    Of<F32> logits;                 // [N, E]
    Of<Optional<F32>> bias = {};    // [E]
    Of<Optional<I32>> tokens = {};  // [N]
    static constexpr std::string_view names = "logits bias tokens";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> ids;      // [N, k], the greatest s + bias first
    Of<F32> weights;  // [N, k]
    static constexpr std::string_view names = "ids weights";
  };
  using Attrs = RouteAttrs;
  static const graph::OpDef def;
};
using Routed = Route::Out<graph::Values>;
struct RouteGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dweights, logits;
    Of<I32> ids;
    static constexpr std::string_view names = "dweights logits ids";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dlogits;
    static constexpr std::string_view names = "dlogits";
  };
  using Attrs = RouteAttrs;
  static const graph::OpDef def;
};

// y = x · weights, one for each row.
struct ScaleRows {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;        // [M, W]
    Of<F32> weights;  // M elements of any shape
    static constexpr std::string_view names = "x weights";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [M, W]
    static constexpr std::string_view names = "y";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
struct ScaleRowsGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy, x;
    Of<F32> weights;
    static constexpr std::string_view names = "dy x weights";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;
    Of<F32> dweights;
    static constexpr std::string_view names = "dx dweights";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
graph::ValueId scale_rows(graph::Graph& graph, graph::ValueId x, graph::ValueId weights);

// For each group of `rows` tokens (0: for all): the sum of the tokens' probabilities (softmax; sigmoid scores
// divided by their sum), and the number of times that each expert was chosen.
struct RouterSumsAttrs {
  RouteAttrs::Score score = RouteAttrs::Score::kSoftmax;
  int64_t rows = 0;
  IdleRows idle = {};  // do not count
  bool operator==(const RouterSumsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("score", static_cast<int64_t>(score));
    to("rows", rows);
    idle.describe(to);
  }
};
struct RouterSums {
  template <template <typename> class Of>
  struct In {
    Of<F32> logits;  // [N, E]
    Of<I32> ids;     // [N, k]
    static constexpr std::string_view names = "logits ids";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> probabilities, counts;  // [G, E]
    static constexpr std::string_view names = "probabilities counts";
  };
  using Attrs = RouterSumsAttrs;
  static const graph::OpDef def;
};
using RouterSumsOf = RouterSums::Out<graph::Values>;
struct RouterSumsGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dprobabilities, logits;
    static constexpr std::string_view names = "dprobabilities logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dlogits;
    static constexpr std::string_view names = "dlogits";
  };
  using Attrs = RouterSumsAttrs;
  static const graph::OpDef def;
};

// The auxiliary loss that balances experts (Switch Transformers, arXiv 2101.03961, eq. 4 to 6; DeepSeek-V3's
// sequence-wise one): of a group with T tokens coefficient · E / (k T C) · Σᵢ countsᵢ · probabilitiesᵢ, which
// is the coefficient where experts are equally busy. C is how many tokens the counts are of: T, or, where all
// groups have the same counts, [1, E], those of other groups and micro-batches too. A group counts as often
// as it has targets, so that the loss has the main one's denominator; targets below 0 do not count. Counts
// carry no gradient.
struct BalanceLossAttrs {
  double coefficient = 0;
  int64_t k = 1;
  int64_t rows = 0;    // targets of a group
  int64_t tokens = 0;  // T: of a group, in all layers whose probabilities were added up
  bool operator==(const BalanceLossAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("coefficient", coefficient);
    to("k", k);
    to("rows", rows);
    to("tokens", tokens);
  }
};
struct BalanceLoss {
  template <template <typename> class Of>
  struct In {
    Of<F32> probabilities;  // [G, E]
    Of<F32> counts;         // [G, E], or [1, E]
    Of<I32> targets;        // G · rows of them
    static constexpr std::string_view names = "probabilities counts targets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;  // [1], an accumulator
    static constexpr std::string_view names = "sum";
  };
  using Attrs = BalanceLossAttrs;
  static const graph::OpDef def;
};
// Gradients are those of seed · sum, here and of the z-loss.
struct BalanceLossGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> counts;
    Of<I32> targets;
    Of<Optional<F32>> seed = {};  // [1]; absent: 1
    static constexpr std::string_view names = "counts targets seed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dprobabilities;
    static constexpr std::string_view names = "dprobabilities";
  };
  using Attrs = BalanceLossAttrs;
  static const graph::OpDef def;
};

// The z-loss (ST-MoE, arXiv 2202.08906, eq. 5): coefficient · (log Σ exp logits)² of every token with a
// target. With `rows`, logits are of an encoder's sequences of `rows` tokens, which have no targets: those of
// a sequence count together as often as it has targets.
struct ZLossAttrs {
  double coefficient = 0;
  int64_t rows = 0;
  bool operator==(const ZLossAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("coefficient", coefficient);
    if (rows > 0) to("rows", rows);
  }
};
struct RouterZLoss {
  template <template <typename> class Of>
  struct In {
    Of<F32> logits;   // [N, E]
    Of<I32> targets;  // [N]; with `rows`, any number per sequence
    static constexpr std::string_view names = "logits targets";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;  // [1], an accumulator
    static constexpr std::string_view names = "sum";
  };
  using Attrs = ZLossAttrs;
  static const graph::OpDef def;
};
struct RouterZLossGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> logits;
    Of<I32> targets;
    Of<Optional<F32>> seed = {};  // [1]; absent: 1
    static constexpr std::string_view names = "logits targets seed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dlogits;
    static constexpr std::string_view names = "dlogits";
  };
  using Attrs = ZLossAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
