#include "device/encode.h"

#include <map>
#include <string>
#include <utility>

#include "ops/ops.h"

namespace strata::device {

using graph::Graph;
using graph::kNone;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;

void encode_pass(Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device) {
  std::map<std::pair<ValueId, std::string>, ValueId> encoded;
  const size_t count = graph.nodes().size();
  for (size_t i = 0; i < count; ++i) {
    const Binding& binding = find_binding(bindings, *graph.nodes()[i].op);
    if (binding.encodings == nullptr) continue;
    for (const WantedEncoding& wanted : binding.encodings({graph, graph.nodes()[i]}, device)) {
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
