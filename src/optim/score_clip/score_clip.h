// QK-clip (Moonshot AI 2025, "Kimi K2", section 2.1): after an update, the rows of a head whose scores became too great are
// scaled down in the projections to queries and keys.
//
// With S, the greatest scale · q·k of a head in the step, of all ranks and micro-batches, a head's factor is limit / S if S
// exceeds the limit, else 1. Rows take of it (graph::Parameter::ScoreClip::Share):
//
//   keys                               √least    the least factor of the query heads that read the key head
//   queries                            min(1, own / √least)
//   queries of keys that heads share   own       latent attention's rotated part, whose keys stay unchanged
//
// Each head of queries with its own keys (multi-head attention) thus takes √own on both sides. The paper has no rule for heads
// that share keys. This one scales the scores of each head by its own factor or less and enlarges no weight: a head that is not
// too great loses only the √least of its keys. Megatron-LM takes √least for all queries of a group too, which shrinks such
// heads on both sides, step by step.
//
// How a kind of attention takes part: its op has an optional fp32 output [parts, heads] which accumulates by taking the
// greater one (ops::Scored), and its nodes write the block's accumulator (ops::keep_greatest). The block then describes the
// rows of its projections in Parameter::score_clip, with the accumulator as `scores` (layers::clip_scores). Nothing here
// depends on the op.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

using ScoreClip = graph::Parameter::ScoreClip;

struct ScoreFactorsAttrs {
  double limit = 0;
  int64_t kv_heads = 1;
  std::vector<ScoreClip::Heads> rows = {};
  bool operator==(const ScoreFactorsAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// A factor for each row of a parameter; all 1 in a step that is skipped.
struct ScoreFactors {
  template <template <typename> class Of>
  struct In {
    Of<F32> scores;   // [parts, query heads], of all ranks
    Of<U8> decision;  // a GuardDecision
    static constexpr std::string_view names = "scores decision";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> factors;  // [rows]
    static constexpr std::string_view names = "factors";
  };
  using Attrs = ScoreFactorsAttrs;
  static const graph::OpDef def;
};

// Multiplies rows of a matrix, or elements of a vector. Those with factor 1 are not touched.
struct ScaleRows {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter;  // [R, C] or [R]
    Of<F32> factors;    // [R]
    static constexpr std::string_view names = "parameter factors";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter;
    static constexpr std::string_view names = "parameter";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct ScoreSummaryAttrs {
  double limit = 0;
  int64_t stages = 1;
  bool operator==(const ScoreSummaryAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("limit", limit);
    if (stages != 1) to("stages", stages);
  }
};
// Columns of a ScoreSummary.
inline constexpr int64_t kScoreHeads = 0, kGreatestScore = 1, kClippedHeads = 2, kScoreColumns = 3;

// The row of this rank's stage of the pipeline; zeros in those of other stages. A skipped step clips no head.
struct ScoreSummary {
  template <template <typename> class Of>
  struct In {
    Of<Many<F32>> scores;  // [parts, heads] of each block, of all ranks
    Of<U8> decision;       // a GuardDecision
    Of<I32> rank;          // per-rank constants
    static constexpr std::string_view names = "scores decision rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> summary;  // [stages, kScoreColumns]
    static constexpr std::string_view names = "summary";
  };
  using Attrs = ScoreSummaryAttrs;
  static const graph::OpDef def;
};

// The factor of a head: finite scores above the limit are scaled down to it.
double head_factor(double limit, double greatest);
// What a row takes, of its head's factor and of the least one of the heads that read the same keys.
double share_factor(ScoreClip::Share share, double own, double least);

// After the updates of all parameters: scales the rows of those that have a score_clip, and makes the summary of all ranks the
// metric kScoreClip.
void clip_scores(graph::Graph& graph, graph::ValueId decision, double limit);

}  // namespace strata::optim
