// A graph of one node, or of a few, run in isolation through a device's bindings: for the probes of rates and
// for tests of single ops.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/call_list.h"
#include "device/device.h"
#include "graph/graph.h"
#include "tensor/arena.h"

namespace strata::device {

class OpRun {
 public:
  // Packs weights, binds every node and allocates every value separately, `copies` times, in `pool` if that
  // is large enough, otherwise in new memory. Of several writers of a gradient or a metric the first
  // overwrites and the others add.
  OpRun(graph::Graph graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device,
        int copies = 1, const Arena* pool = nullptr);
  // The same on a device, with its table and in its memory. `as`: planned as for that description, whose choices the
  // device must be able to run.
  OpRun(graph::Graph graph, const std::shared_ptr<Device>& device)
      : OpRun(std::move(graph), device, device->spec()) {}
  OpRun(graph::Graph graph, std::shared_ptr<Device> device, const hardware::DeviceSpec& as);

  const graph::Graph& graph() const { return graph_; }
  // All bytes of a value.
  void upload(graph::ValueId value, const void* from);
  void download(graph::ValueId value, void* to) const;
  // Fills all values and the scratch memory with a byte.
  void poison(int byte);

  // Where the memory is the host's: for the processor.
  std::byte* data(graph::ValueId value, int copy = 0) const;
  template <typename T>
  T* data_as(graph::ValueId value, int copy = 0) const {
    return reinterpret_cast<T*>(data(value, copy));
  }
  // Bytes of all values of one copy.
  int64_t bytes() const { return bytes_; }
  int copies() const { return copies_; }
  // Scratch memory of the kernels, for tests that fill it.
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
  void make_calls(std::span<const Binding> bindings, const hardware::DeviceSpec& spec);
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
  std::shared_ptr<Device> device_;
  std::unique_ptr<Memory> own_;
  std::byte* memory_ = nullptr;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

// A value without a producer: an input of a single op.
graph::ValueId add_operand(graph::Graph& graph, std::string name, DType dtype, Shape shape,
                           std::vector<int64_t> segments = {}, graph::Role role = graph::Role::kActivation);

}  // namespace strata::device
