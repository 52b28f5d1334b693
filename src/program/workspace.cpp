#include "program/workspace.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/arena.h"

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

WorkspacePlanner::WorkspacePlanner(const Graph& graph, const Sequence& sequence, std::vector<Pool> pools)
    : pools_(std::move(pools)),
      buffer_(at(graph.value_count()), kNone),
      own_lives_(at(graph.value_count())),
      last_use_(at(graph.value_count())),
      in_pool_(pools_.empty() ? 0 : at(graph.value_count())) {
  find_lives(graph, sequence);
  lives_ = own_lives_;
  share_in_place(graph, sequence);
  fill_pools(sequence);
  for (const ValueId id : order_) {
    if (buffer_[at(id)] == id && !is_pooled(id)) lifetimes_.push_back(lives_[at(id)]);
  }
  for (size_t i = 0; i < sequence.size(); ++i)
    lifetimes_.push_back({sequence[i].scratch_bytes, static_cast<int32_t>(i), sequence[i].done});
}

int64_t WorkspacePlanner::pool_bytes() const {
  int64_t bytes = 0;
  for (const Pool& pool : pools_) bytes += pool.bytes();
  return bytes;
}

Layout WorkspacePlanner::plan(std::vector<Place>& places) const {
  Layout layout = plan_memory(lifetimes_);
  const int64_t begin = pool_bytes();
  size_t owners = 0;
  for (const ValueId id : order_) {
    const ValueId owner = buffer_[at(id)];
    Operand place;
    if (owner != id) {
      place = places[at(owner)].at;  // an owner comes before what shares its buffer
    } else if (is_pooled(id)) {
      place = in_pool_[at(id)];
    } else {
      place = {begin + layout.offsets[owners++], Base::kArena};
    }
    const Lifetime& life = own_lives_[at(id)];
    places[at(id)] = {id, place, life.bytes, life.first, life.last};
  }
  return layout;
}

// All values of a slot live at once between the two segments, so that nothing is saved by letting them share
// bytes.
void WorkspacePlanner::fill_pools(const Sequence& sequence) {
  if (pools_.empty()) return;
  for (const ValueId id : order_) {
    if (buffer_[at(id)] != id) continue;
    const Lifetime& life = lives_[at(id)];
    const Segment from = sequence[at(life.first)].segment, to = sequence[at(life.last)].segment;
    if (from == to) continue;
    const auto pool = std::find_if(pools_.begin(), pools_.end(),
                                   [&](const Pool& one) { return one.from == from && one.to == to; });
    STRATA_CHECK(pool != pools_.end(), "no pool from {} to {}", name_of(from), name_of(to));
    in_pool_[at(id)] = {pool->slot_bytes, base_of_pool(static_cast<size_t>(pool - pools_.begin()))};
    pool->slot_bytes += align_up(life.bytes, kBufferAlignment);
  }
  int64_t offset = 0;
  for (Pool& pool : pools_) {
    pool.offset = offset;
    offset += pool.bytes();
  }
}

void WorkspacePlanner::find_lives(const Graph& graph, const Sequence& sequence) {
  for (size_t i = 0; i < sequence.size(); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(sequence[i].node)];
    const auto instruction = static_cast<int32_t>(i);
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone || !graph::is_temporary(graph.value(id).role)) continue;
        if (!lives(id)) {
          order_.push_back(id);
          buffer_[at(id)] = id;
          own_lives_[at(id)] = {graph.value(id).bytes(), instruction, instruction};
        }
        Lifetime& life = own_lives_[at(id)];
        life.last = std::max(life.last, sequence[i].done);
        last_use_[at(id)] = instruction;
      }
    }
  }
}

void WorkspacePlanner::share_in_place(const Graph& graph, const Sequence& sequence) {
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
      int32_t& last_use = last_use_[at(buffer_[at(input)])];
      if (last_use != instruction || owner.last > sequence[i].done) continue;
      if (owner.bytes != made.bytes || made.first != instruction) continue;
      // What an earlier segment left in a slot gives way to what is for a later one.
      if (!pools_.empty() && sequence[at(owner.first)].segment != sequence[i].segment &&
          sequence[at(made.last)].segment != sequence[i].segment)
        continue;
      // The kernel may read the buffer through another input too.
      if (times_read(node, buffer_[at(input)]) > 1) continue;
      owner.last = made.last;
      last_use = last_use_[at(output)];
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
