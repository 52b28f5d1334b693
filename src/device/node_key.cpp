#include "device/node_key.h"

namespace strata::device {
namespace {

using graph::kNone;
using graph::Value;
using graph::ValueId;

void append(std::string& key, int64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Counts before lists, so that no two operands run into each other.
void append(std::string& key, std::span<const int64_t> numbers) {
  append(key, static_cast<int64_t>(numbers.size()));
  key.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

void append_operand(std::string& key, const graph::Graph& graph, ValueId id) {
  if (id == kNone) {
    append(key, kNone);
    return;
  }
  const Value& value = graph.value(id);
  append(key, static_cast<int64_t>(value.dtype));
  append(key, value.shape.dims());
  append(key, value.segments);
  append(key, value.segments_along);
  append(key, static_cast<int64_t>(value.encoding.kind));
  if (value.encoding.kind == graph::Encoding::Kind::kPlain) return;
  append(key, value.encoding.bytes);
  append(key, static_cast<int64_t>(value.encoding.layout.size()));
  key += value.encoding.layout;
}

}  // namespace

void append_key(std::string& key, const graph::NodeView& view) {
  append(key, reinterpret_cast<intptr_t>(view.node.op));
  for (const auto* ids : {&view.node.inputs, &view.node.outputs}) {
    append(key, static_cast<int64_t>(ids->size()));
    for (const ValueId id : *ids) append_operand(key, view.graph, id);
  }
  view.node.attrs.append_to(key);
}

}  // namespace strata::device
