// A graph of one node, or of a few, run alone through a device's bindings: for the probes that rates come
// from and for tests of single ops.
#pragma once

#include <span>
#include <vector>

#include "device/bindings.h"
#include "graph/graph.h"
#include "tensor/arena.h"

namespace strata::device {

class OpRun {
 public:
  // Gives weights their encodings, binds every node and lays every value apart, `copies` times, in memory of
  // its own or in `pool` where that is large enough. Of several writers of a gradient or a metric the first
  // overwrites and the others add.
  OpRun(graph::Graph graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device,
        int copies = 1, const Arena* pool = nullptr);

  const graph::Graph& graph() const { return graph_; }
  std::byte* data(graph::ValueId value, int copy = 0) const;
  template <typename T>
  T* data_as(graph::ValueId value, int copy = 0) const {
    return reinterpret_cast<T*>(data(value, copy));
  }
  // Bytes of all values of one copy.
  int64_t bytes() const { return bytes_; }
  int copies() const { return copies_; }
  // What the kernels use beside their operands, for tests that fill it.
  std::span<std::byte> scratch() const { return {scratch_, static_cast<size_t>(scratch_bytes_)}; }

  // Nodes that talk to other ranks do so among these (OpDef::ranks); they must outlive this.
  void share(comm::Communicator& ranks) { launch_.ranks = &ranks; }
  void encode(int copy = 0) { run_nodes(copy, true); }  // nodes of the phases setup and encode
  void run(int copy = 0) { run_nodes(copy, false); }    // all others

 private:
  struct Call {
    BoundKernel kernel;
    std::shared_ptr<void> instance;  // null: the plan
    std::vector<graph::ValueId> operands;
    bool prepares = false;
  };
  void run_nodes(int copy, bool prepares);

  graph::Graph graph_;
  int copies_;
  Launch launch_;
  PlanCache plans_;
  std::vector<Call> calls_;
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
  Arena own_;
  std::byte* memory_ = nullptr;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  std::vector<std::byte*> pointers_;
};

// A value that nobody produces: what a single op reads.
graph::ValueId add_operand(graph::Graph& graph, std::string name, DType dtype, Shape shape,
                           std::vector<int64_t> segments = {}, graph::Role role = graph::Role::kActivation);

}  // namespace strata::device
