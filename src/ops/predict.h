// What layers that predict further tokens read (multi-token prediction: DeepSeek-V3, arXiv 2412.19437, §2.2).
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

struct TargetsAheadAttrs {
  int64_t sequence_length = 1;
  bool operator==(const TargetsAheadAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("sequence_length", sequence_length); }
};
// `targets` i32[N], the next token of each token, -1 where there is none to be told, as behind the end of a
// document; `ahead` i32[N], the token k places ahead, or -1 (for k = 1 the targets themselves); whole
// sequences. Gives
//   tokens  i32[N], `ahead` as what a look-up reads: 0 where there is none,
//   targets i32[N], the token k + 1 places ahead: that which the next place has k ahead, where it is of the
//           same document and sequence, else -1.
struct Ahead {
  graph::ValueId tokens, targets;
};
Ahead targets_ahead(graph::Graph& graph, graph::ValueId targets, graph::ValueId ahead,
                    int64_t sequence_length);
struct TargetsAhead {
  enum In : int { kTargets, kAhead };
  enum Out : int { kTokens, kTargetsAhead };
};
extern const graph::OpDef kTargetsAhead;  // (targets, ahead) → tokens, targets

// [a | b] of a[N, w] and b[N, v].
graph::ValueId side_by_side(graph::Graph& graph, graph::ValueId a, graph::ValueId b);

}  // namespace strata::ops
