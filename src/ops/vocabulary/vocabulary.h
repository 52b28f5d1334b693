// Where the parts of a sharded vocabulary begin.
#pragma once

#include "graph/placement.h"
#include "ops/signatures.h"

namespace strata::ops {

struct VocabStartAttrs {
  graph::Axis axis = {};
  int64_t parts = 1;  // of the vocabulary
  int64_t rows = 0;   // of each part
  int64_t ranks = 1;  // of the axis, on a rank
  bool operator==(const VocabStartAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("parts", parts);
    to("rows", rows);
    to("ranks", ranks);
  }
};

struct VocabStart {
  template <template <typename> class Of>
  struct In {
    Of<I32> rank;  // [axes]
    static constexpr std::string_view names = "rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<I32> start;  // [parts], the row of the whole vocabulary at which each part begins
    static constexpr std::string_view names = "start";
  };
  using Attrs = VocabStartAttrs;
  static const graph::OpDef def;
};
// Starts of the parts of a table whose rows are sharded along an axis, one part a rank of the axis. They are
// sharded as the table is, so a rank has its own, whose parts are of equal size. kNone if the axis does not
// shard the table.
graph::ValueId vocab_start(graph::Graph& graph, graph::ValueId table, graph::Axis axis);

}  // namespace strata::ops
