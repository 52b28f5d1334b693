// How a node becomes a call: one row an op and device. Lowering asks the row once, when the program is made;
// the executor then calls a plain function with pointers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "graph/op.h"
#include "hardware/device_spec.h"

namespace strata::device {

// Ranks with which a kernel exchanges rows itself (OpDef::ranks); nullptr: none.
struct Peers {
  comm::Communicator* ranks = nullptr;
  // If these are spread over nodes: those at the same place on each node, and those of this node.
  comm::Communicator *across = nullptr, *within = nullptr;
};

// Launch context of a kernel: everything besides its operands.
struct Launch {
  int threads = 1;        // compute threads that it may use
  void* queue = nullptr;  // the device's own, on which its kernels are started: a GPU's stream
  Peers peers = {};       // of the call
  // The instruction that starts kernels, for errors that arrive later; nullptr: not known. Read during the call only.
  const char* instruction = nullptr;
};

// `instance`: what BoundKernel::instantiate made of the plan, else the plan. Operands: pointers to the node's
// inputs, its outputs (nullptr where absent), then scratch.
using Kernel = void (*)(Launch& launch, void* instance, std::byte* const* operands);

// Plans made so far, by the text that determines them: equal GEMMs share one.
using PlanCache = std::map<std::string, std::shared_ptr<const void>>;

struct BindRequest {
  graph::NodeView view;
  // For each output: whether the kernel adds to its content (accumulators) or overwrites it.
  std::vector<bool> accumulate;
  PlanCache& cache;
  const hardware::DeviceSpec& device;  // that the plan is for; it need not be this machine
};

// A plan is data: made only from shapes and a DeviceSpec, immutable, shared by all executors of the program.
// Other resources of a kernel, such as a library's handles, are in an instance, which each executor makes.
using Instantiate = std::shared_ptr<void> (*)(const void* plan);

// Waits for the work that a kernel has started on this instance; returns immediately if it has ended already.
using Finish = void (*)(void* instance);

struct BoundKernel {
  Kernel run = nullptr;
  std::shared_ptr<const void> plan;
  int64_t scratch_bytes = 0;
  Instantiate instantiate = nullptr;  // nullptr: the kernel takes the plan itself
  // For a kernel on the communication queue, which only starts an exchange: its operands are in use until
  // this returns, and its instance starts nothing else.
  Finish finish = nullptr;
};

// An input that the kernel needs in a packed layout.
struct WantedEncoding {
  int input = 0;
  graph::Encoding encoding;
  DType dtype = DType::kF32;
};

// A row may read only the properties of a node that node_key.h covers: its result is used for all nodes with
// an equal key.
struct Binding {
  const graph::OpDef* op;
  std::function<BoundKernel(const BindRequest&)> bind;
  std::vector<WantedEncoding> (*encodings)(const graph::NodeView&,
                                           const hardware::DeviceSpec&) = nullptr;  // nullptr: plain weights
  // For an update: whether its kernel can write this packed layout of its parameter in the same pass. The
  // layouts that it is given follow the op's outputs.
  bool (*writes)(const graph::NodeView& update, const graph::Value& encoded,
                 const hardware::DeviceSpec&) = nullptr;  // nullptr: none
};

// What a program is compiled for: a device as data, which need not be this machine, and its kernels.
struct Target {
  hardware::DeviceSpec spec;
  std::span<const Binding> bindings;
};

// The row of an op. InternalError if there is none.
const Binding& find_binding(std::span<const Binding> table, const graph::OpDef& op);

// A table followed by the rows of `fallback` for ops that it lacks: for a device that shares the host's
// memory and uses the plain kernels for ops that it has no kernel for yet.
std::vector<Binding> with_fallback(std::span<const Binding> table, std::span<const Binding> fallback);

}  // namespace strata::device
