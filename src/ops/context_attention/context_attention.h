// Attention where the ranks of a mesh axis share the rows of each sequence (context parallelism).
//
// A sequence has 2 · ranks equal chunks. Rank i attends for the rows of the i-th from the begin and of the
// i-th from the end (graph::Cut::sequence). What keys it reads depends on the kind:
//
//   all-gather  those of whole sequences, gathered from all ranks
//   ring        those of one rank after the other, while the next ones are on their way; the partial results
//               are merged by their sums of exponentials (Liu et al. 2023, "Ring attention with blockwise
//               transformers")
//   Ulysses     whole sequences for a share of the heads: plain attention between two all-to-alls (Jacobs et
//               al. 2023, "DeepSpeed Ulysses")
#pragma once

#include "ops/attention/attention.h"

namespace strata::ops {

// Splits [N, q | k | v]: queries stay on their rank, keys and values are sent to other ranks.
struct SplitQkv {
  template <template <typename> class Of>
  struct In {
    Of<Act> qkv;  // [N, q | k | v]
    static constexpr std::string_view names = "qkv";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> q, kv;  // [N, q], [N, k | v]
    static constexpr std::string_view names = "q kv";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};
struct JoinQkv {
  template <template <typename> class Of>
  using In = SplitQkv::Out<Of>;
  template <template <typename> class Of>
  using Out = SplitQkv::In<Of>;
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

struct ContextAttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // rows of a sequence that a rank has, in two chunks
  int64_t kv_length = 0;        // keys of a sequence, of those that are read
  double scale = 1;
  int64_t window = 0;      // as AttentionAttrs
  double softcap = 0;      // as AttentionAttrs
  bool causal = false;     // a row sees no key after its own place
  int64_t bias_zero = 0;   // as AttentionAttrs
  int64_t value_dim = 0;   // as AttentionAttrs
  graph::Axis axis = {};   // whose ranks share the rows
  int64_t ranks = 1;       // of the axis, on a rank; 1 before localize()
  int64_t ring_step = -1;  // the keys are those of the rank this many places before; -1: of whole sequences
  int64_t greatest_parts = 0;  // as AttentionAttrs
  int64_t size_of_value() const { return value_dim > 0 ? value_dim : head_dim; }
  bool operator==(const ContextAttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// A row sees the keys from kv_begin (absent: 0) to kv_end (absent: the last), at most to its own place where
// causal; these and the bias count places of the whole sequence, where q's rows have one.
struct ContextAttention : Scored {
  template <template <typename> class Of>
  struct In {
    Of<Act> q;                                     // [N, heads · head_dim], a rank's rows
    Of<Act> kv;                                    // [M, k | v], the same number of sequences
    Of<Optional<I32>> kv_begin = {}, kv_end = {};  // [N]
    Of<Optional<F32>> bias = {};                   // as Attention; not in a ring
    Of<I32> rank;                                  // per-rank constants
    Of<Optional<F32>> sinks = {};                  // [heads]; in a ring only of the first step
    static constexpr std::string_view names = "q kv kv_begin kv_end bias rank sinks";
  };
  using Attrs = ContextAttentionAttrs;
  static const graph::OpDef def;
};

struct ContextAttentionGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dout, out;
    Of<F32> lse;
    Of<Act> q, kv;
    Of<Optional<I32>> kv_begin = {}, kv_end = {};
    Of<Optional<F32>> bias = {};
    Of<I32> rank;
    static constexpr std::string_view names = "dout out lse q kv kv_begin kv_end bias rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> dq, dkv;
    Of<Optional<F32>> dbias;  // with the bias
    static constexpr std::string_view names = "dq dkv dbias";
  };
  using Attrs = ContextAttentionAttrs;
  static const graph::OpDef def;
};

// Attention to the keys of both results, which share none. The last merge of a ring names what its gradient
// is made of, of all steps together; the other merges have no gradient.
struct MergeAttention : Attended {
  template <template <typename> class Of>
  struct In {
    Of<Act> out;
    Of<F32> lse;
    Of<Act> more_out;
    Of<F32> more_lse;
    Of<Optional<Act>> q = {}, kv = {};
    Of<Optional<I32>> kv_begin = {}, kv_end = {}, rank = {};
    Of<Optional<F32>> sinks = {};
    static constexpr std::string_view names = "out lse more_out more_lse q kv kv_begin kv_end rank sinks";
  };
  using Attrs = ContextAttentionAttrs;
  static const graph::OpDef def;
};

// q: a rank's rows; kv: keys and values of whole sequences of `kv_length`.
AttendedIds context_attended(graph::Graph& graph, graph::ValueId q, graph::ValueId kv,
                             graph::ValueId kv_begin, int64_t kv_length, const AttentionOptions& options);
graph::ValueId context_attention(graph::Graph& graph, graph::ValueId q, graph::ValueId kv,
                                 graph::ValueId kv_begin, int64_t kv_length, const AttentionOptions& options);
// Like context_attention(), with the keys and values of only this rank's rows, kv[N, k | v]: those of the
// others pass by, and in backward again, with their gradients. No bias.
graph::ValueId ring_attention(graph::Graph& graph, graph::ValueId q, graph::ValueId kv,
                              graph::ValueId kv_begin, const AttentionOptions& options);

}  // namespace strata::ops
