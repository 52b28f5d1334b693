// What layers that predict further tokens read (multi-token prediction: DeepSeek-V3, arXiv 2412.19437, §2.2).
#pragma once

#include "ops/signatures.h"

namespace strata::ops {

struct TargetsAheadAttrs {
  int64_t sequence_length = 1;
  bool operator==(const TargetsAheadAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("sequence_length", sequence_length); }
};

// Takes whole sequences.
struct TargetsAhead {
  template <template <typename> class Of>
  struct In {
    Of<I32> targets;  // [N], the next token of each token; -1 if there is none, as at the end of a document
    Of<I32> ahead;    // [N], the token k places ahead, or -1; for k = 1 the targets themselves
    static constexpr std::string_view names = "targets ahead";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> tokens;  // [N], `ahead` as a look-up reads it: 0 if there is none
    // [N], the token k + 1 places ahead: the next place's token k ahead if it is of the same document and
    // sequence, else -1
    Of<I32> ahead;
    static constexpr std::string_view names = "tokens ahead";
  };
  using Attrs = TargetsAheadAttrs;
  static const graph::OpDef def;
};

// [a | b] of a[N, w] and b[N, v].
graph::ValueId side_by_side(graph::Graph& graph, graph::ValueId a, graph::ValueId b);

}  // namespace strata::ops
