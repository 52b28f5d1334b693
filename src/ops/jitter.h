// Noise on what a router reads while it trains (Switch Transformers, arXiv 2101.03961, §2.2).
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

struct JitterAttrs {
  double eps = 0;
  int64_t stream = 0;  // of random numbers: one a layer
  bool operator==(const JitterAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("eps", eps);
    to("stream", stream);
  }
};
// y[N, d] = x · (1 − eps + 2 eps u), u uniform in [0, 1): a pure function of the stream, the number of the
// sample that a row is of, samples i32[sequences], and of the place in it.
graph::ValueId jitter(graph::Graph& graph, graph::ValueId x, graph::ValueId samples,
                      const JitterAttrs& attrs);
struct Jitter {
  enum In : int { kX, kSamples };
  enum Out : int { kY };
};
extern const graph::OpDef kJitter;  // (x f32[N, d], samples) → y; its own gradient

}  // namespace strata::ops
