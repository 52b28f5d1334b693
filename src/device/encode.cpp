#include "device/encode.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "device/node_key.h"
#include "ops/ops.h"

namespace strata::device {

using graph::Graph;
using graph::kNone;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;

namespace {

// What kernels want, asked once for equal nodes.
class Wishes {
 public:
  Wishes(std::span<const Binding> bindings, const hardware::DeviceSpec& device)
      : bindings_(bindings), device_(device) {}

  const std::vector<WantedEncoding>& of(const graph::NodeView& view) {
    if (view.node.op->queue == graph::Queue::kCommunication) return none_;  // no device binds it
    const Binding& binding = find_binding(bindings_, *view.node.op);
    if (binding.encodings == nullptr) return none_;
    key_.clear();
    append_key(key_, view);
    const auto [slot, is_new] = wanted_.try_emplace(key_);
    if (is_new) slot->second = binding.encodings(view, device_);
    return slot->second;
  }

 private:
  std::span<const Binding> bindings_;
  const hardware::DeviceSpec& device_;
  std::unordered_map<std::string, std::vector<WantedEncoding>> wanted_;
  std::string key_;
  const std::vector<WantedEncoding> none_;
};

}  // namespace

void encode_pass(Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device) {
  std::map<std::pair<ValueId, std::string>, ValueId> encoded;
  Wishes wishes(bindings, device);
  const size_t count = graph.nodes().size();
  for (size_t i = 0; i < count; ++i) {
    for (const WantedEncoding& wanted : wishes.of({graph, graph.nodes()[i]})) {
      const ValueId master = graph.nodes()[i].inputs[static_cast<size_t>(wanted.input)];
      if (graph.value(master).role != Role::kParameter) continue;
      auto [slot, is_new] = encoded.try_emplace({master, wanted.encoding.layout}, kNone);
      if (is_new) {
        const Value& plain = graph.value(master);
        Value value;
        value.name = plain.name + "@" + wanted.encoding.layout;
        value.dtype = wanted.dtype;
        value.shape = plain.shape;
        value.role = Role::kEncoded;
        value.encoding = wanted.encoding;
        value.placements = plain.placements;
        value.segments = plain.segments;
        value.segments_along = plain.segments_along;
        slot->second = graph.add_value(std::move(value));
        graph.set_phase(Phase::kEncode);
        graph.set_layer(graph.nodes()[i].layer);
        graph.add_node_into(ops::kPackWeight, {master}, {slot->second});
      }
      graph.nodes()[i].inputs[static_cast<size_t>(wanted.input)] = slot->second;
    }
  }
  graph.set_phase(Phase::kForward);
  graph.set_layer(kNone);
}

}  // namespace strata::device
