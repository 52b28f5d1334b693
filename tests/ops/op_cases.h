// One table of cases per op, small and of odd sizes; it serves the tests of placements and of gradients.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

struct Operand {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments = {};
  bool absent = false;
  // Content as a function of the element's index; unset: pseudo-random in (-1, 1).
  std::function<double(int64_t)> content = {};
  bool always_f32 = false;  // stays so where activations are bf16
};

struct OpCase {
  std::string name;
  const graph::OpDef* op = nullptr;
  std::vector<Operand> inputs;
  graph::Attrs attrs;
  // For ops that write over their inputs: of each output the input that it is, or -1.
  std::vector<int> updates = {};
  double tolerance = 2e-5;       // relative to 1 + |value|, of shards against the whole
  bool replicated_only = false;  // no axis of a mesh can split it
};

inline void PrintTo(const OpCase& one, std::ostream* out) {
  *out << one.name;
}

// Every op that a graph of a model holds. Sizes divide by four where a placement cuts them.
const std::vector<OpCase>& op_cases();

}  // namespace strata::ops
