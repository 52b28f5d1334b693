// Experts that choose their tokens (Zhou et al. 2022, arXiv 2202.09368): of each group of tokens every expert
// takes the `capacity` tokens that score it highest, so that all experts are equally busy and a token may
// have none or several. M = groups · E · capacity places, ordered by group, then by expert.
#pragma once

#include "ops/router/router.h"

namespace strata::ops {

struct ExpertChoiceAttrs {
  RouteAttrs::Score score = RouteAttrs::Score::kSoftmax;
  int64_t rows = 0;      // tokens of a group
  int64_t capacity = 0;  // at most `rows`
  double scale = 1;
  bool operator==(const ExpertChoiceAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("score", static_cast<int64_t>(score));
    to("rows", rows);
    to("capacity", capacity);
    to("scale", scale);
  }
};
// Among equal tokens the first is chosen; a token with a logit that is not finite is chosen by every expert
// that has capacity, with NaN as weight, so that the loss shows it.
struct ExpertChoice {
  template <template <typename> class Of>
  struct In {
    Of<F32> logits;  // [N, E]
    static constexpr std::string_view names = "logits";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> tokens;   // [M]: the position in its group of a place's token, ascending within an expert
    Of<I32> experts;  // [M, 1]: the place's expert
    Of<F32> weights;  // [M, 1]: the token's score of the expert · scale
    static constexpr std::string_view names = "tokens experts weights";
  };
  using Attrs = ExpertChoiceAttrs;
  static const graph::OpDef def;
};
struct ExpertChoiceGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> dweights, logits;
    Of<I32> tokens;
    static constexpr std::string_view names = "dweights logits tokens";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dlogits;
    static constexpr std::string_view names = "dlogits";
  };
  using Attrs = ExpertChoiceAttrs;
  static const graph::OpDef def;
};

// Rows of groups that are taken into places.
struct GroupRowsAttrs {
  int64_t rows = 0;   // tokens of a group
  int64_t slots = 0;  // of a group
  bool operator==(const GroupRowsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("slots", slots);
  }
};
struct GroupRows {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;       // one row per token, or per place
    Of<I32> tokens;  // [M]
    static constexpr std::string_view names = "x tokens";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;
    static constexpr std::string_view names = "y";
  };
  using Attrs = GroupRowsAttrs;
};
// y[M, d]: row m is row tokens[m] of its group in x[N, d].
struct GatherRows : GroupRows {
  static const graph::OpDef def;
};
// y[N, d]: the sums of the rows of x[M, d] that are of the same token, in fp32 and in their order.
struct ScatterRows : GroupRows {
  static const graph::OpDef def;
};

}  // namespace strata::ops
