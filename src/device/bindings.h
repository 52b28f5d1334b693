// How a node becomes a call: one row an op and device. Lowering asks the row once, when the program is made;
// the executor then calls a plain function with pointers.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/op.h"

namespace strata::device {

// Pointers of an instruction: its inputs, its outputs (nullptr where absent), then scratch.
using Kernel = void (*)(const void* plan, std::byte* const* operands);

// Plans made so far, by the text that determines them: equal GEMMs share one.
using PlanCache = std::map<std::string, std::shared_ptr<const void>>;

struct BindRequest {
  graph::NodeView view;
  // For each output: whether the kernel adds to what lies there (accumulators) or overwrites it.
  std::vector<bool> accumulate;
  PlanCache& cache;
  int threads = 1;
};

struct BoundKernel {
  Kernel run = nullptr;
  std::shared_ptr<const void> plan;
  int64_t scratch_bytes = 0;
};

// An input that the kernel wants in another encoding than the parameter's own.
struct WantedEncoding {
  int input = 0;
  graph::Encoding encoding;
  DType dtype = DType::kF32;
};

struct Binding {
  const graph::OpDef* op;
  BoundKernel (*bind)(const BindRequest&);
  std::vector<WantedEncoding> (*encodings)(const graph::NodeView&) = nullptr;  // nullptr: plain weights
};

// The row of an op; a missing one is a bug.
const Binding& find_binding(std::span<const Binding> table, const graph::OpDef& op);

}  // namespace strata::device
