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
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    offsets_.push_back(bytes_);
    bytes_ += align_up(graph_.value(id).bytes(), kBufferAlignment);
  }
  operands_.reserve(graph_.nodes().size());
  std::vector<bool> written(static_cast<size_t>(graph_.value_count()));
  for (const Node& node : graph_.nodes()) {
    BindRequest request{{graph_, node}, std::vector<bool>(node.outputs.size(), false), cache_, device};
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNone) continue;
      const auto out = static_cast<size_t>(node.outputs[o]);
      const graph::Role role = graph_.value(node.outputs[o]).role;
      const bool accumulates = role == graph::Role::kGradient || role == graph::Role::kMetric;
      request.accumulate[o] = accumulates && written[out];
      written[out] = true;
    }
    const BoundKernel kernel = find_binding(bindings, *node.op).bind(request);
    plans_.push_back(kernel.plan);
    scratch_bytes_ = std::max(scratch_bytes_, kernel.scratch_bytes);
    std::vector<Location>& operands = operands_.emplace_back();
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids)
        operands.push_back(id == kNone ? Location{} : Location{offsets_[static_cast<size_t>(id)], kValues});
    }
    operands.push_back({0, kScratch});
    const bool prepares = node.phase == Phase::kSetup || node.phase == Phase::kEncode;
    (prepares ? preparing_ : calls_)
        .add(kernel.run, instances_.of(kernel.plan.get(), kernel.instantiate), operands, kernel.finish);
    if (node.loop == kNone) continue;
    const ValueId condition = graph_.condition_of(node.loop);
    if (loops_.empty() || loops_.back().condition != condition)
      loops_.push_back({calls_.size() - 1, 0, condition});
    loops_.back().end = calls_.size();
  }
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

void OpRun::run(CallList& list, int copy, std::span<const Loop> loops) {
  STRATA_CHECK(copy < copies_, "copy {} of {}", copy, copies_);
  std::byte* const addresses[] = {nullptr, memory_ + copy * bytes_, scratch_};
  size_t at = 0;
  const auto run_to = [&](size_t end) {
    for (; at < end; ++at) list.run(at, launch_, addresses);
  };
  for (const Loop& loop : loops) {
    for (run_to(loop.begin); *data_as<int32_t>(loop.condition, copy) != 0; at = loop.begin) run_to(loop.end);
    at = loop.end;
  }
  run_to(list.size());
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
