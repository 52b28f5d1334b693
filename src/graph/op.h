// The device-independent description of an op: its shape rule, placement rule, gradient and cost. One folder
// in src/ops defines one family of ops; each device binds its kernels to them (device/bindings.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace strata::graph {

class GradientBuilder;

// Result of a shape rule for one output.
struct ValueSpec {
  std::string_view suffix;  // appended to the node's name for the value's name
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments = {};
  bool absent = false;  // the node does not have it: its entry is kNone
  int segments_along = -1;
};

// Work of one node: floating-point operations (a multiply-add counts two; causal attention by half) and the
// bytes that it must at least read and write.
struct Cost {
  double flops = 0;
  double bytes = 0;
  // The part of `bytes` that clears an output of which only places are added to afterwards; left out where
  // the output is an accumulator that holds something already.
  double cleared_bytes = 0;
  // The part of `bytes` that carries no information about the speed of the arithmetic, because it does not
  // grow with it: a head's weights, compared with the logits of its tokens.
  double streamed_bytes = 0;
};

// A node as its rules see it.
struct NodeView {
  const Graph& graph;
  const Node& node;

  bool has(int input) const {
    return input < static_cast<int>(node.inputs.size()) && node.inputs[static_cast<size_t>(input)] != kNone;
  }
  const Value& in(int input) const { return graph.value(node.inputs[static_cast<size_t>(input)]); }
  bool has_out(int output) const {
    return output < static_cast<int>(node.outputs.size()) &&
           node.outputs[static_cast<size_t>(output)] != kNone;
  }
  const Value& out(int output) const { return graph.value(node.outputs[static_cast<size_t>(output)]); }
  template <typename T>
  const T& attrs() const {
    return node.attrs.as<T>();
  }
};

// Output `output` may overwrite input `input` if that input is not read later.
struct InPlace {
  int output;
  int input;
};

// Every op is in the list of all ops from its construction on: none can be left out.
class OpRegistration {
 public:
  explicit OpRegistration(const OpDef& op);
  OpRegistration(const OpRegistration&) = delete;
  OpRegistration& operator=(const OpRegistration&) = delete;
};

// The device queue that executes a node. A queue works in order. Queues run concurrently; one waits for
// another only if an instruction requests it.
enum class Queue : uint8_t {
  kCompute,
  kCommunication,  // between ranks: carried out by a communicator, or started by a kernel that talks to them
};
inline constexpr int kQueues = 2;

// With whom a kernel exchanges rows itself: the ranks along some axes, and how many bytes of rows
// go from one of them to all others at most at a time.
struct OpRanks {
  std::vector<Axis> axes = {};
  int64_t node_ranks = 0;  // above 0: ranks per node; rows then also travel across and within nodes
  int64_t most_bytes = 0;
  double sent_bytes = 0;  // by one of them to all others in a call, if rows are spread equally
};

struct OpDef {
  std::string_view name;
  std::string_view
      family;  // kernels of one family have one rate in the roofline: "gemm", "attention", "elementwise", …
  std::function<std::vector<ValueSpec>(const NodeView&)> infer = {};
  std::function<Cost(const NodeView&)> cost = {};
  // Every way to split the op along `axis`, all replicated excepted (it is always legal).
  std::function<std::vector<PlacementOption>(const NodeView&, Axis axis)> placements = {};
  // Adds the nodes of the gradient; nullptr: no gradient passes.
  std::function<void(GradientBuilder&, const Node&)> gradient = {};
  std::vector<InPlace> in_place = {};
  // Adds a node that cheaply recomputes output `output` from values that backward saves anyway; kNone if that
  // is impossible. Used by selective recompute.
  std::function<ValueId(Graph&, const Node&, int output)> recompute = {};
  // The attributes of the node on a rank, if they contain sizes that are split; nullptr: unchanged.
  std::function<Attributes(const NodeView& global)> localize = {};
  Queue queue = Queue::kCompute;
  // The ranks that a kernel exchanges data with itself; nullptr: none.
  std::function<OpRanks(const NodeView&)> ranks = {};
  OpRegistration registration{*this};

  // Whether a device runs it; otherwise only a communicator does.
  bool has_kernel() const { return queue != Queue::kCommunication || ranks != nullptr; }
};
// Those whose files are part of this program.
std::span<const OpDef* const> all_ops();

// Throws ConfigError("[where] …") from a shape rule.
[[noreturn]] void shape_error(const NodeView& view, const std::string& what);

// Bytes of all inputs and outputs, each counted once: the cost of a node that streams.
double streamed_bytes(const NodeView& view);

// What an output that holds something already adds to Cost::bytes: it is read too, and never cleared.
double accumulator_bytes(const Cost& cost, const Value& held);

// The dtype under which a node's rates are stored: "bf16" when any operand is bf16, else "f32".
std::string compute_dtype(const NodeView& view);

}  // namespace strata::graph
