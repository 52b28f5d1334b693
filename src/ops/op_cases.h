// The table of cases: what tests run every op at, and what its rate is measured at. An op without rows here
// fails a test (tests/ops/coverage_test.cpp). One row serves
//   agreement with the reference kernels, in fp32 and, if it has activations, in bf16;
//   finite differences, where the op has a gradient;
//   every placement that the op declares, shard by shard against the whole;
//   poisoned outputs and scratch.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::device {

struct Operand {
  DType dtype = DType::kF32;
  Shape shape = {};
  std::vector<int64_t> segments = {};
  bool absent = false;
  int same_as = -1;         // absent, and in its place the value of this other input
  bool activation = false;  // bf16 where activations are
  bool constant = false;    // no gradient flows to it though it holds numbers
  // Content as a function of the element's index; unset: pseudo-random in (-1, 1), for timing any small
  // numbers.
  std::function<double(int64_t)> content = {};
  int segments_along = -1;  // as graph::Value has it
};

struct OpCase {
  std::string name;
  const graph::OpDef* op = nullptr;
  std::vector<Operand> inputs = {};
  graph::Attributes attrs = {};
  // For ops that write over their inputs: of each output the input that it is, or -1.
  std::vector<int> updates = {};
  double tolerance = 2e-5;             // relative to 1 + |value|
  bool replicated_only = false;        // no axis of a mesh can split it
  bool ragged = false;                 // sizes that no placement cuts: rows and vectors with a rest
  std::vector<int> opaque = {};        // outputs whose bytes only the device's own kernels read
  std::vector<int> left_out = {};      // outputs that were not requested
  std::vector<int> differentiable{0};  // outputs that a gradient comes from
  bool encoding = false;               // packing of its weight is timed, not the op
  bool adds = false;                   // it is timed as it adds to its outputs, which hold something
};

inline void PrintTo(const OpCase& one, std::ostream* out) {
  *out << one.name;
}

// Small; those that a placement cuts divide by two, those of ragged cases by nothing.
const std::vector<OpCase>& op_cases();
// The sizes at which rates are measured, as models have them; activations are fp32.
const std::vector<OpCase>& timed_cases();
// The case with activations in bf16; nullopt if it has no activations.
std::optional<OpCase> in_bf16(const OpCase& one);
// The same in fp16, whose three further bits of the fraction allow an eighth of the tolerance.
std::optional<OpCase> in_fp16(const OpCase& one);

// Ops that no rate is measured of, and why.
struct UntimedOp {
  const graph::OpDef* op;
  std::string_view because;
};
std::span<const UntimedOp> untimed_ops();

void put_element(DType dtype, std::byte* to, int64_t i, double value);
// Writes an operand's content, which it must have, as elements of its dtype.
void fill(const Operand& operand, std::byte* to);

// The op of a case as the only node of a graph, on operands of these shapes (a case's own, or shards of
// them). Where it adds, the same node precedes it in Phase::kEncode and fills its outputs.
struct OpGraph {
  graph::Graph graph;
  std::vector<graph::ValueId> inputs, outputs;
};
OpGraph graph_of(const OpCase& one, const std::vector<Operand>& inputs);

}  // namespace strata::device
