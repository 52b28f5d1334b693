#include "device/op_run.h"

#include <algorithm>

#include "base/error.h"
#include "device/encode.h"
#include "device/host_device.h"

namespace strata::device {

using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::ValueId;

OpRun::OpRun(graph::Graph graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device,
             int copies, const Arena* pool)
    : graph_(std::move(graph)),
      copies_(copies),
      launch_{device.threads},
      device_(std::make_shared<HostDevice>(Target{device, bindings})) {
  make_calls(bindings, device);
  const int64_t needed = bytes_ * copies + scratch_bytes_;
  if (pool != nullptr && pool->size() >= needed) {
    memory_ = pool->data();
  } else {
    own_ = device_->allocate(std::max(needed, kBufferAlignment));
    memory_ = own_->address();
  }
  scratch_ = memory_ + bytes_ * copies;
}

OpRun::OpRun(graph::Graph graph, std::shared_ptr<Device> device, const hardware::DeviceSpec& as)
    : graph_(std::move(graph)), copies_(1), device_(std::move(device)) {
  make_calls(device_->target().bindings, as);
  launch_ = device_->begin_launches();
  own_ = device_->allocate(std::max(bytes_ + scratch_bytes_, kBufferAlignment));
  memory_ = own_->address();
  scratch_ = memory_ + bytes_;
}

void OpRun::make_calls(std::span<const Binding> bindings, const hardware::DeviceSpec& spec) {
  encode_pass(graph_, bindings, spec);
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    offsets_.push_back(bytes_);
    bytes_ += align_up(graph_.value(id).bytes(), kBufferAlignment);
  }
  operands_.reserve(graph_.nodes().size());
  std::vector<bool> written(static_cast<size_t>(graph_.value_count()));
  for (const Node& node : graph_.nodes()) {
    BindRequest request{{graph_, node}, std::vector<bool>(node.outputs.size(), false), cache_, spec};
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
}

void OpRun::upload(ValueId value, const void* from) {
  device_->upload(*own_, offsets_[static_cast<size_t>(value)], from, graph_.value(value).bytes());
}

void OpRun::download(ValueId value, void* to) const {
  device_->download(*own_, offsets_[static_cast<size_t>(value)], to, graph_.value(value).bytes());
}

void OpRun::poison(int byte) {
  const std::vector<std::byte> bytes(static_cast<size_t>(own_->bytes()), static_cast<std::byte>(byte));
  device_->upload(*own_, 0, bytes.data(), own_->bytes());
}

std::byte* OpRun::data(ValueId value, int copy) const {
  STRATA_CHECK(copy < copies_, "copy {} of {}", copy, copies_);
  return memory_ + copy * bytes_ + offsets_[static_cast<size_t>(value)];
}

void OpRun::run(CallList& list, int copy, std::span<const Loop> loops) {
  STRATA_CHECK(copy < copies_, "copy {} of {}", copy, copies_);
  std::byte* const addresses[] = {nullptr, memory_ + copy * bytes_, scratch_};
  size_t at = 0;
  const auto goes_on = [&](const Loop& loop, int of) {
    int32_t condition = 0;
    if (own_ == nullptr || copies_ > 1) return *data_as<int32_t>(loop.condition, of) != 0;
    device_->download(*own_, offsets_[static_cast<size_t>(loop.condition)], &condition, sizeof condition);
    return condition != 0;
  };
  const auto run_to = [&](size_t end) {
    for (; at < end; ++at) list.run(at, launch_, addresses);
  };
  for (const Loop& loop : loops) {
    for (run_to(loop.begin); goes_on(loop, copy); at = loop.begin) run_to(loop.end);
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
