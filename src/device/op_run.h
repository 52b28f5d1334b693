// A graph of one node, or of a few, run alone through a device's bindings: for the probes that rates come
// from and for tests of single ops.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/call_list.h"
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
  void share(comm::Communicator& ranks) { launch_.peers.ranks = &ranks; }
  void encode(int copy = 0) { run(preparing_, copy); }   // nodes of the phases setup and encode
  void run(int copy = 0) { run(calls_, copy, loops_); }  // all others

 private:
  // Places in the table of addresses.
  static constexpr Base kValues{1}, kScratch{2};
  // Calls [begin, end), as long as the number at `condition` is not 0.
  struct Loop {
    size_t begin = 0, end = 0;
    graph::ValueId condition = graph::kNone;
  };
  void run(CallList& list, int copy, std::span<const Loop> loops = {});

  graph::Graph graph_;
  int copies_;
  Launch launch_;
  PlanCache cache_;
  std::vector<std::shared_ptr<const void>> plans_;
  Instances instances_;
  std::vector<std::vector<Location>> operands_;  // by node
  CallList preparing_, calls_;
  std::vector<Loop> loops_;  // of calls_
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
  Arena own_;
  std::byte* memory_ = nullptr;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

// A value that nobody produces: what a single op reads.
graph::ValueId add_operand(graph::Graph& graph, std::string name, DType dtype, Shape shape,
                           std::vector<int64_t> segments = {}, graph::Role role = graph::Role::kActivation);

}  // namespace strata::device
