#include "program/workspace.h"

#include <algorithm>

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Role;
using graph::ValueId;

namespace {

size_t at(ValueId id) {
  return static_cast<size_t>(id);
}

}  // namespace

WorkspacePlanner::WorkspacePlanner(const Graph& graph, const std::vector<Bound>& sequence)
    : buffer_(at(graph.value_count()), kNone), own_lives_(at(graph.value_count())) {
  find_lives(graph, sequence);
  lives_ = own_lives_;
  share_in_place(graph, sequence);
  for (const ValueId id : order_) {
    if (buffer_[at(id)] == id) lifetimes_.push_back(lives_[at(id)]);
  }
  for (size_t i = 0; i < sequence.size(); ++i) {
    const auto instruction = static_cast<int32_t>(i);
    lifetimes_.push_back({sequence[i].kernel.scratch_bytes, instruction, instruction});
  }
}

Layout WorkspacePlanner::plan(std::vector<Place>& places) const {
  Layout layout = plan_memory(lifetimes_);
  size_t owners = 0;
  for (const ValueId id : order_) {
    // An owner comes before what shares its buffer.
    const int64_t offset =
        buffer_[at(id)] == id ? layout.offsets[owners++] : places[at(buffer_[at(id)])].at.offset;
    const Lifetime& life = own_lives_[at(id)];
    places[at(id)] = {id, {offset, Base::kArena}, life.bytes, life.first, life.last};
  }
  return layout;
}

void WorkspacePlanner::find_lives(const Graph& graph, const std::vector<Bound>& sequence) {
  for (size_t i = 0; i < sequence.size(); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(sequence[i].node)];
    const auto instruction = static_cast<int32_t>(i);
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone || graph.value(id).role != Role::kActivation) continue;
        if (!lives(id)) {
          order_.push_back(id);
          buffer_[at(id)] = id;
          own_lives_[at(id)] = {graph.value(id).bytes(), instruction, instruction};
        }
        own_lives_[at(id)].last = instruction;
      }
    }
  }
}

void WorkspacePlanner::share_in_place(const Graph& graph, const std::vector<Bound>& sequence) {
  for (size_t i = 0; i < sequence.size(); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(sequence[i].node)];
    const auto instruction = static_cast<int32_t>(i);
    for (const graph::InPlace& pair : node.op->in_place) {
      if (pair.input >= static_cast<int>(node.inputs.size()) ||
          pair.output >= static_cast<int>(node.outputs.size()))
        continue;
      const ValueId input = node.inputs[static_cast<size_t>(pair.input)];
      const ValueId output = node.outputs[static_cast<size_t>(pair.output)];
      if (!lives(input) || !lives(output) || buffer_[at(output)] != output) continue;
      Lifetime& owner = lives_[at(buffer_[at(input)])];
      const Lifetime& made = lives_[at(output)];
      if (owner.last != instruction || owner.bytes != made.bytes || made.first != instruction) continue;
      // The kernel may read the buffer through another input too.
      if (times_read(node, buffer_[at(input)]) > 1) continue;
      owner.last = made.last;
      buffer_[at(output)] = buffer_[at(input)];
    }
  }
}

int WorkspacePlanner::times_read(const Node& node, ValueId owner) const {
  int count = 0;
  for (const ValueId input : node.inputs) {
    if (lives(input) && buffer_[at(input)] == owner) ++count;
  }
  return count;
}

}  // namespace strata::program
