#include "device/encode.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "device/node_key.h"
#include "graph/zero.h"
#include "ops/linear/linear.h"

namespace strata::device {

graph::Encoding bf16_copy_of(const graph::Value& weight) {
  return {graph::Encoding::Kind::kPacked, weight.shape.elements() * size_of(DType::kBF16), kPlainBf16};
}

using graph::Graph;
using graph::kNone;
using graph::Node;
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
    if (!view.node.op->has_kernel()) return none_;
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

namespace {

class Encoder {
 public:
  Encoder(Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device)
      : graph_(graph), bindings_(bindings), device_(device), wishes_(bindings, device) {}

  void run() {
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    graph_.nodes().reserve(old.size());
    for (Node& node : old) {
      const std::vector<WantedEncoding>& wishes = wishes_.of({graph_, node});
      for (const WantedEncoding& wanted : wishes) {
        ValueId& input = node.inputs[static_cast<size_t>(wanted.input)];
        const Value& plain = graph_.value(input);
        if (plain.role != Role::kParameter && plain.sharding.whole_of == kNone) continue;
        input = encoded(input, wanted, node);
      }
      graph_.nodes().push_back(std::move(node));
    }
    graph_.nodes().insert(graph_.nodes().end(), std::make_move_iterator(encoders_.begin()),
                          std::make_move_iterator(encoders_.end()));
    graph_.set_phase(Phase::kForward);
    graph_.set_layer(kNone);
    graph_.set_chunk(0);
    give_to_updates();
  }

 private:
  ValueId encoded(ValueId plain, const WantedEncoding& wanted, const Node& reader) {
    auto [slot, is_new] = encoded_.try_emplace({plain, wanted.encoding.layout}, kNone);
    if (!is_new) return slot->second;
    const Value& weight = graph_.value(plain);
    // A weight that is gathered at its use is packed there too.
    const bool is_temporary = graph::is_temporary(weight.role);
    Value value;
    value.name = weight.name + "@" + wanted.encoding.layout;
    value.dtype = wanted.dtype;
    value.shape = weight.shape;
    value.role = is_temporary ? Role::kActivation : Role::kEncoded;
    value.encoding = wanted.encoding;
    value.placements = weight.placements;
    value.segments = weight.segments;
    value.segments_along = weight.segments_along;
    value.sharding.global_shape = weight.sharding.global_shape;
    value.sharding.global_segments = weight.sharding.global_segments;
    slot->second = graph_.add_value(std::move(value));
    const Phase phase = !is_temporary                     ? Phase::kEncode
                        : reader.phase == Phase::kForward ? Phase::kForward
                                                          : Phase::kRecompute;
    graph_.set_phase(phase);
    graph_.set_layer(reader.layer);
    graph_.set_chunk(reader.chunk);
    graph::add_into<ops::PackWeight>(graph_, {.weight = plain}, {.packed = slot->second});
    if (phase == Phase::kEncode) {
      encoders_.push_back(std::move(graph_.nodes().back()));
      graph_.nodes().pop_back();
    }
    return slot->second;
  }

  // Ranks that gather a weight pack it afterwards: then all packed layouts are made there.
  void give_to_updates() {
    std::map<ValueId, Node*> updates;
    for (Node& node : graph_.nodes()) {
      if (graph::is_gather(graph_, node) && node.phase == Phase::kEncode) return;
      if (node.phase != Phase::kUpdate || node.outputs.empty()) continue;
      // Parameters whose rows have several rules stay unchanged.
      const auto [one, is_new] = updates.try_emplace(node.outputs.front(), &node);
      if (!is_new) one->second = nullptr;
    }
    for (const auto& [from_and_layout, encoded] : encoded_) {
      const auto found = updates.find(from_and_layout.first);
      if (found == updates.end() || found->second == nullptr) continue;
      Node& update = *found->second;
      if (!update.op->has_kernel()) continue;
      const Binding& binding = find_binding(bindings_, *update.op);
      if (binding.writes != nullptr && binding.writes({graph_, update}, graph_.value(encoded), device_))
        update.outputs.push_back(encoded);
    }
  }

  Graph& graph_;
  std::span<const Binding> bindings_;
  const hardware::DeviceSpec& device_;
  Wishes wishes_;
  std::map<std::pair<ValueId, std::string>, ValueId> encoded_;
  std::vector<Node> encoders_;  // after all others, as they run once
};

}  // namespace

void encode_pass(Graph& graph, std::span<const Binding> bindings, const hardware::DeviceSpec& device) {
  Encoder(graph, bindings, device).run();
}

}  // namespace strata::device
