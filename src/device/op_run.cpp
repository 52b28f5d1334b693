#include "device/op_run.h"

#include <algorithm>

#include "base/error.h"
#include "device/encode.h"

namespace strata::device {

using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::ValueId;

OpRun::OpRun(graph::Graph graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device,
             int copies, const Arena* pool)
    : graph_(std::move(graph)), copies_(copies), launch_{device.threads} {
  encode_pass(graph_, bindings, device);
  size_t widest = 0;
  std::vector<bool> written(static_cast<size_t>(graph_.value_count()));
  for (const Node& node : graph_.nodes()) {
    BindRequest request{{graph_, node}, std::vector<bool>(node.outputs.size(), false), plans_, device};
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNone) continue;
      const auto out = static_cast<size_t>(node.outputs[o]);
      const graph::Role role = graph_.value(node.outputs[o]).role;
      const bool accumulates = role == graph::Role::kGradient || role == graph::Role::kMetric;
      request.accumulate[o] = accumulates && written[out];
      written[out] = true;
    }
    Call call{find_binding(bindings, *node.op).bind(request), nullptr, node.inputs,
              node.phase == Phase::kSetup || node.phase == Phase::kEncode};
    call.operands.insert(call.operands.end(), node.outputs.begin(), node.outputs.end());
    if (call.kernel.instantiate != nullptr) call.instance = call.kernel.instantiate(call.kernel.plan.get());
    scratch_bytes_ = std::max(scratch_bytes_, call.kernel.scratch_bytes);
    widest = std::max(widest, call.operands.size() + 1);
    calls_.push_back(std::move(call));
  }
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    offsets_.push_back(bytes_);
    bytes_ += align_up(graph_.value(id).bytes(), kBufferAlignment);
  }
  pointers_.resize(widest);
  const int64_t needed = bytes_ * copies + scratch_bytes_;
  if (pool != nullptr && pool->size() >= needed) {
    memory_ = pool->data();
  } else {
    own_ = Arena(std::max(needed, kBufferAlignment));
    memory_ = own_.data();
  }
  scratch_ = memory_ + bytes_ * copies;
}

std::byte* OpRun::data(ValueId value, int copy) const {
  STRATA_CHECK(copy < copies_, "copy {} of {}", copy, copies_);
  return memory_ + copy * bytes_ + offsets_[static_cast<size_t>(value)];
}

void OpRun::run_nodes(int copy, bool prepares) {
  for (const Call& call : calls_) {
    if (call.prepares != prepares) continue;
    for (size_t i = 0; i < call.operands.size(); ++i)
      pointers_[i] = call.operands[i] == kNone ? nullptr : data(call.operands[i], copy);
    pointers_[call.operands.size()] = scratch_;
    void* const instance = call.instance ? call.instance.get() : const_cast<void*>(call.kernel.plan.get());
    call.kernel.run(launch_, instance, pointers_.data());
  }
}

ValueId add_operand(graph::Graph& graph, std::string name, DType dtype, Shape shape,
                    std::vector<int64_t> segments, graph::Role role) {
  graph::Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = shape;
  value.role = role;
  value.segments = std::move(segments);
  return graph.add_value(std::move(value));
}

}  // namespace strata::device
