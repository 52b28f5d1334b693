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
// y[N, d] = x · (1 − eps + 2 eps u), u uniform in [0, 1): a pure function of the stream and of what `places`
// i32[N, 2] says of a row, the number of its sample and its place in it.
graph::ValueId jitter(graph::Graph& graph, graph::ValueId x, graph::ValueId places, const JitterAttrs& attrs);
struct Jitter {
  enum In : int { kX, kPlaces };
  enum Out : int { kY };
};
extern const graph::OpDef kJitter;  // (x f32[N, d], places) → y; its own gradient

struct SamplePlacesAttrs {
  int64_t rows = 0;  // of a sample
  bool operator==(const SamplePlacesAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("rows", rows); }
};
// Of each row of samples of so many rows the sample's number and the place in it.
graph::ValueId sample_places(graph::Graph& graph, graph::ValueId samples, int64_t rows);
struct SamplePlaces {
  enum In : int { kSamples };
  enum Out : int { kPlaces };
};
extern const graph::OpDef kSamplePlaces;  // (samples i32[sequences]) → places i32[sequences · rows, 2]

}  // namespace strata::ops
