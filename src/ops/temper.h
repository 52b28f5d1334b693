// What a row's place in its text does to it.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

// The part q of qkv[N, q | k | v] times 1 + scale · log(1 + ⌊(position + 1) / floor⌋): scores that grow with
// the place, so that attention over many keys stays sharp (Llama 4; Nakanishi 2025, "Scalable-softmax").
struct TemperAttrs {
  int64_t floor = 0;  // 0: queries are left as they are
  double scale = 0;
  bool operator==(const TemperAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("floor", floor);
    to("scale", scale);
  }
};
graph::ValueId temper(graph::Graph& graph, graph::ValueId qkv, graph::ValueId positions,
                      const TemperAttrs& attrs);
struct Temper {
  enum In : int { kQkv, kPositions };
  enum Out : int { kY };
};
extern const graph::OpDef kTemper;  // (qkv, positions i32[N]) → y; its own gradient

// i32[N]: where the keys begin that a row sees of the chunks of `size` tokens that its document, which begins
// at begins[n] (absent: at 0), is cut into; positions count from the document's begin.
struct ChunkAttrs {
  int64_t size = 0;
  bool operator==(const ChunkAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("size", size); }
};
graph::ValueId chunk_begins(graph::Graph& graph, graph::ValueId positions, graph::ValueId begins,
                            int64_t size);
struct ChunkBegins {
  enum In : int { kPositions, kBegins };
  enum Out : int { kOut };
};
extern const graph::OpDef kChunkBegins;

}  // namespace strata::ops
