// Cross entropy of a head: the sum over the valid targets (≥ 0) of −log softmax(x · weightᵀ + bias)[target],
// and their count, both accumulated over micro-batches. Two forms with the same bits: fused, whose training
// op makes the logits once, and split, for cases that one instruction cannot handle.
#pragma once

#include <string>

#include "ops/signatures.h"

namespace strata::ops {

struct LossOptions {
  bool per_token = false;              // also Loss::per_token and Loss::greedy
  double softcap = 0;                  // above 0: a logit l becomes softcap · tanh(l / softcap)
  graph::ValueId bias = graph::kNone;  // fp32 [V]; not with softcap
  // If there are several losses: the index of this one's metrics, and the prefix of their names.
  int32_t number = 0;
  std::string prefix = {};
  // Only for the split form, in which the weight's rows may be sharded (ops/vocabulary).
  graph::ValueId vocab_start = graph::kNone;
  // For the split form: one node computes all gradients, from recomputed logits. Four matmuls.
  bool one_gradient = false;
  double target_share = 1;  // of the tokens that have a target, on average: the others cost nothing
};
// The metrics kLossSum, kTokenCount, kTokenLoss and kTokenGreedy.
struct Loss {
  graph::ValueId sum, count, per_token, greedy;
};

// --- The fused form

struct LinearCrossEntropyAttrs {
  double softcap = 0;
  double target_share = 1;  // of the tokens that have a target, on average; the others cost nothing
  bool operator==(const LinearCrossEntropyAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("softcap", softcap);
    if (target_share != 1) to("target_share", target_share);
  }
};

struct LinearCrossEntropy {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                    // [N, K]
    Of<Weight> weight;            // [V, K]
    Of<I32> targets;              // [N]
    Of<Optional<F32>> bias = {};  // [V]
    static constexpr std::string_view names = "x weight targets bias";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;                       // [1]
    Of<I64> count;                     // [1]
    Of<Optional<F32>> per_token = {};  // [N]
    Of<Optional<I32>> greedy = {};     // [N]
    static constexpr std::string_view names = "sum count per_token greedy";
  };
  using Attrs = LinearCrossEntropyAttrs;
  static const graph::OpDef def;
};
Loss linear_cross_entropy(graph::Graph& graph, graph::ValueId x, graph::ValueId weight,
                          graph::ValueId targets, const LossOptions& options = {});

// Gradients are those of seed · sum; sum and count are not scaled.
struct LinearCrossEntropyTrain {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                    // [N, K]
    Of<Weight> weight;            // [V, K], for logits
    Of<Weight> weight_of_dx;      // the same, for dx
    Of<I32> targets;              // [N]
    Of<Optional<F32>> bias = {};  // [V]
    Of<Optional<F32>> seed = {};  // [1]
    static constexpr std::string_view names = "x weight weight_of_dx targets bias seed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F64> sum;                   // [1]
    Of<I64> count;                 // [1]
    Of<Act> dx;                    // [N, K]
    Of<F32> dw;                    // [V, K], accumulates
    Of<Optional<F32>> dbias = {};  // [V], accumulates
    static constexpr std::string_view names = "sum count dx dw dbias";
  };
  using Attrs = LinearCrossEntropyAttrs;
  static const graph::OpDef def;
};

// --- The split form: forward apart from backward, input gradients apart from weight gradients, or a sharded
// vocabulary. The logits are made three times: five products of the head's size for the fused form's three.

Loss split_cross_entropy(graph::Graph& graph, graph::ValueId x, graph::ValueId weight, graph::ValueId targets,
                         const LossOptions& options = {});
// Its two halves, between which statistics may be moved.
graph::ValueId cross_entropy_statistics(graph::Graph& graph, graph::ValueId x, graph::ValueId weight,
                                        graph::ValueId targets, const LossOptions& options = {});
Loss loss_of_statistics(graph::Graph& graph, graph::ValueId statistics, graph::ValueId targets,
                        const LossOptions& options = {});

// Attributes of the statistics and their gradients. The rows of the weight are parts of equal size, one per
// entry of `vocab_start`; without it they are the whole vocabulary.
struct CrossEntropyAttrs {
  double softcap = 0;
  int64_t vocabulary = 0;     // rows of the whole vocabulary, which targets count
  bool one_gradient = false;  // one node computes the gradients of x and of the weight
  double target_share = 1;    // as above
  bool operator==(const CrossEntropyAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("softcap", softcap);
    to("vocabulary", vocabulary);
    if (one_gradient) to("one_gradient", one_gradient);
    if (target_share != 1) to("target_share", target_share);
  }
};

// For each part's logits: the maximum, the sum of exp(logit − maximum), and the target's logit, −∞ if the
// target is in another part. All are 0 for a token without target. Rows past the end of the vocabulary are
// ignored.
struct CrossEntropyStatistics {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                           // [N, K]
    Of<Weight> weight;                   // [V, K]
    Of<I32> targets;                     // [N]
    Of<Optional<F32>> bias = {};         // [V]
    Of<Optional<I32>> vocab_start = {};  // [parts]
    static constexpr std::string_view names = "x weight targets bias vocab_start";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> statistics;  // [parts, N, 3]
    static constexpr std::string_view names = "statistics";
  };
  using Attrs = CrossEntropyAttrs;
  static const graph::OpDef def;
};

struct CrossEntropyLoss {
  template <template <typename> class Of>
  struct In {
    Of<F32> statistics;  // [parts, N, 3]
    Of<I32> targets;     // [N]
    static constexpr std::string_view names = "statistics targets";
  };
  template <template <typename> class Of>
  using Out = LinearCrossEntropy::Out<Of>;
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct CrossEntropyLossGrad {
  template <template <typename> class Of>
  struct In {
    Of<F32> statistics;           // [parts, N, 3]
    Of<I32> targets;              // [N]
    Of<Optional<F32>> seed = {};  // [1]
    static constexpr std::string_view names = "statistics targets seed";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dstatistics;  // [parts, N, 3]
    static constexpr std::string_view names = "dstatistics";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct CrossEntropyGradInput {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                           // [N, K]
    Of<Weight> weight;                   // [V, K], for logits
    Of<Weight> weight_of_dx;             // the same, for dx
    Of<I32> targets;                     // [N]
    Of<F32> statistics, dstatistics;     // [parts, N, 3]
    Of<Optional<F32>> bias = {};         // [V]
    Of<Optional<I32>> vocab_start = {};  // [parts]
    static constexpr std::string_view names =
        "x weight weight_of_dx targets statistics dstatistics bias vocab_start";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;  // [N, K]
    static constexpr std::string_view names = "dx";
  };
  using Attrs = CrossEntropyAttrs;
  static const graph::OpDef def;
};

struct CrossEntropyGradWeight {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;                           // [N, K]
    Of<Weight> weight;                   // [V, K], for logits
    Of<I32> targets;                     // [N]
    Of<F32> statistics, dstatistics;     // [parts, N, 3]
    Of<Optional<F32>> bias = {};         // [V]
    Of<Optional<I32>> vocab_start = {};  // [parts]
    static constexpr std::string_view names = "x weight targets statistics dstatistics bias vocab_start";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dw;                    // [V, K], accumulates
    Of<Optional<F32>> dbias = {};  // [V], accumulates
    static constexpr std::string_view names = "dw dbias";
  };
  using Attrs = CrossEntropyAttrs;
  static const graph::OpDef def;
};

// Both.
struct CrossEntropyGrad {
  template <template <typename> class Of>
  using In = CrossEntropyGradInput::In<Of>;
  template <template <typename> class Of>
  struct Out {
    Of<Act> dx;                    // [N, K]
    Of<F32> dw;                    // [V, K], accumulates
    Of<Optional<F32>> dbias = {};  // [V], accumulates
    static constexpr std::string_view names = "dx dw dbias";
  };
  using Attrs = CrossEntropyAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
