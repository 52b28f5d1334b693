// Operands of a case as dense tensors of doubles, and execution of its op on them: for tests, and for devices that test
// themselves.
#pragma once

#include <ostream>
#include <vector>

#include "base/function_ref.h"
#include "device/op_run.h"
#include "ops/op_cases.h"

namespace strata::ops {

using device::OpCase;

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments;
  std::vector<double> values;
  bool absent = false;
  int segments_along = -1;

  int segment_dim() const { return segments_along < 0 ? shape.rank() + segments_along : segments_along; }
};

// In (-1, 1).
double pseudo_random(uint64_t i);
// An operand's content. `stream`: of pseudo-random ones.
Tensor tensor_of(const device::Operand& operand, uint64_t stream);
// `round`: other pseudo-random numbers.
std::vector<Tensor> inputs_of(const OpCase& one, uint64_t round = 0);

// Within `tolerance` times 1 + |wanted|; infinities must be equal.
bool is_near(double found, double wanted, double tolerance);
void store(const Tensor& tensor, std::byte* to);
Tensor load(const graph::Value& value, const std::byte* from);

// The shapes of a case's operands, or of shards of them.
std::vector<device::Operand> operands_of(const OpCase& one, const std::vector<Tensor>& inputs);

// The outputs of the op for these inputs; omitted outputs have no values. All other memory, including outputs and scratch, is
// filled with the byte `poison` first: 0xff makes NaN. `make`: on the device of the caller.
std::vector<Tensor> run_case(const OpCase& one, const std::vector<Tensor>& inputs,
                             FunctionRef<device::OpRun(graph::Graph)> make, int poison = 0xff);

// A case as its operands may be placed: `placed` writes outputs over inputs where the planner of memory may share a
// buffer between them (OpDef::in_place, program/workspace.h). The results are those of `apart`.
struct PlacedCase {
  OpCase apart, placed;
};
inline void PrintTo(const PlacedCase& one, std::ostream* out) {
  *out << one.placed.name;
}

// Each pair by itself; then, if several outputs may be placed so, all of them.
std::vector<PlacedCase> placed_cases(const OpCase& one);

}  // namespace strata::ops
