// Attention where the ranks of a mesh axis share the rows of each sequence (context parallelism).
//
// Of a sequence in 2 · ranks equal chunks rank i has the i-th from the begin and the i-th from the end
// (graph::Cut::sequence): those rows it attends for. What keys it reads depends on the kind:
//
//   all-gather  those of whole sequences, put together of all ranks'
//   ring        those of one rank after the other, while the next ones are on their way; the partial results
//               are merged by their sums of exponentials (Liu et al. 2023, "Ring attention with blockwise
//               transformers")
//   Ulysses     whole sequences for a share of the heads: plain attention between two all-to-alls (Jacobs et
//               al. 2023, "DeepSpeed Ulysses")
#pragma once

#include "ops/ops.h"

namespace strata::ops {

struct ContextAttentionAttrs {
  int64_t head_dim = 0;
  int64_t sequence_length = 0;  // rows of a sequence that a rank has, in two pieces
  int64_t kv_length = 0;        // keys of a sequence, of those that are read
  double scale = 1;
  int64_t window = 0;      // as AttentionAttrs
  double softcap = 0;      // as AttentionAttrs
  bool causal = false;     // a row sees no key behind its own place
  int64_t bias_zero = 0;   // as AttentionAttrs
  Axis axis = {};          // whose ranks share the rows
  int64_t ranks = 1;       // of the axis, on a rank; 1 before localize()
  int64_t ring_step = -1;  // the keys are those of the rank so many places before; -1: of whole sequences
  bool operator==(const ContextAttentionAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};
struct ContextAttention {
  enum In : int { kQ, kKv, kKvBegin, kKvEnd, kBias, kRank, kSinks };
  enum Out : int { kOut, kLse };
};
struct ContextAttentionGrad {
  enum In : int { kDout, kOut, kLse, kQ, kKv, kKvBegin, kKvEnd, kBias, kRank };
  enum Out : int { kDq, kDkv, kDbias };
};
struct MergeAttention {
  enum In : int { kOut, kLse, kMoreOut, kMoreLse, kQ, kKv, kKvBegin, kKvEnd, kRank, kSinks };
  enum Out : int { kMergedOut, kMergedLse };
};
struct SplitQkv {
  enum In : int { kQkv };
  enum Out : int { kQ, kKv };
};
struct JoinQkv {
  enum In : int { kQ, kKv };
  enum Out : int { kQkv };
};

// qkv[N, q | k | v] in two: what stays where its rows are, and what goes to other ranks.
struct QueriesKeysValues {
  ValueId q, kv;
};
QueriesKeysValues split_qkv(Graph& graph, ValueId qkv);
extern const OpDef kSplitQkv;  // (qkv) → q, kv[N, k | v]
extern const OpDef kJoinQkv;   // (q, kv) → qkv

// q[N, h · hd], a rank's rows; kv[M, k | v], keys and values of whole sequences, as many. A row sees the keys
// from kv_begin (absent: 0) to options.kv_end (absent: the last), at most to its own place where
// options.attrs.causal; these and options.bias count places of the whole sequence, where q's rows have one.
// `kv_length`: of the keys' sequences. Gives [N, h · hd].
ValueId context_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin, int64_t kv_length,
                          const AttentionOptions& options);
// (q, kv, kv_begin?, kv_end?, bias?, rank, sinks?) → out, lse[sequences, h, rows of a sequence]
extern const OpDef kContextAttention;
// (dout, out, lse, q, kv, kv_begin?, kv_end?, bias?, rank) → dq, dkv, dbias?
extern const OpDef kContextAttentionGrad;

// The same with the keys and values of this rank's own rows alone, kv[N, k | v]: those of the others come by.
// No bias. In backward they come by again, and their gradients with them.
ValueId ring_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                       const AttentionOptions& options);
// (out, lse, out, lse, q?, kv?, kv_begin?, kv_end?, rank?, sinks?) → out, lse: attention to the keys of both,
// which are not the same ones. The last of a ring names what its gradient is made of, of all steps together;
// the other merges have none.
extern const OpDef kMergeAttention;

}  // namespace strata::ops
