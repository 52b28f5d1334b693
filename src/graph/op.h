// What the project knows of an op whatever the device: its shape rule, its placement rule, its gradient and
// its cost. One folder in src/ops defines one family of them; each device binds its kernels to them
// (device/bindings.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace strata::graph {

class GradientBuilder;

// What a shape rule says of an output.
struct ValueSpec {
  std::string_view suffix;  // appended to the node's name for the value's name
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments = {};
  bool absent = false;  // the node does not have it: kNone stands in its place
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
  // The part of `bytes` that does not tell how fast the arithmetic is, since it is the same however much
  // there is of it: a head's weights, beside the logits of its tokens.
  double beside_bytes = 0;
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

// Output `output` may be written over input `input`, when nobody reads that input later.
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

// Which queue of a device carries a node out. A queue works in order; queues work beside each other, and one
// waits for another only where an instruction says so.
enum class Queue : uint8_t {
  kCompute,
  kCommunication,  // between ranks: carried out by a communicator, or started by a kernel that talks to them
};
inline constexpr int kQueues = 2;

// With whom a kernel exchanges rows itself: the ranks along some axes, and how many bytes of rows
// go from one of them to all others at most at a time.
struct OpRanks {
  std::vector<Axis> axes = {};
  int64_t node_ranks = 0;  // above 0: each so many of them are a node, across and within which rows go, too
  int64_t most_bytes = 0;
  double sent_bytes = 0;  // by one of them to all others in a call, where rows are spread equally
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
  // A node that gives output `output` again, cheaply, from values that backward keeps anyway; kNone where
  // there is no such way. Used by selective recompute.
  std::function<ValueId(Graph&, const Node&, int output)> recompute = {};
  // The attributes of the node on a rank, where they say sizes that are split; nullptr: as they are.
  std::function<Attributes(const NodeView& global)> localize = {};
  Queue queue = Queue::kCompute;
  // Of a kernel that talks to other ranks itself; nullptr: it does not.
  std::function<OpRanks(const NodeView&)> ranks = {};
  OpRegistration registration{*this};

  // Whether a device runs it; else a communicator alone does.
  bool has_kernel() const { return queue != Queue::kCommunication || ranks != nullptr; }
};
// Those whose files are part of this program.
std::span<const OpDef* const> all_ops();

// Throws ConfigError("[where] …") from a shape rule.
[[noreturn]] void shape_error(const NodeView& view, const std::string& what);

// Bytes of all inputs and outputs, each counted once: the cost of a node that streams.
double streamed_bytes(const NodeView& view);

// The dtype in which rates are kept for a node: "bf16" when any operand is bf16, else "f32".
std::string compute_dtype(const NodeView& view);

}  // namespace strata::graph
