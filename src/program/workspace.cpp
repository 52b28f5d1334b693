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

WorkspacePlanner::WorkspacePlanner(const Graph& graph, const RowViews& views, const Sequence& sequence,
                                   Pools pools, std::vector<Operand> in_messages)
    : pools_(std::move(pools)),
      in_messages_(std::move(in_messages)),
      buffer_(at(graph.value_count()), kNone),
      own_lives_(at(graph.value_count())),
      last_use_(at(graph.value_count())),
      in_pool_(pools_.empty() ? 0 : at(graph.value_count())),
      used_in_(pools_.empty() ? 0 : at(graph.value_count())) {
  find_lives(graph, views, sequence);
  lives_ = own_lives_;
  share_in_place(graph, sequence);
  fill_pools();
  for (const ValueId id : order_) {
    if (buffer_[at(id)] == id && !is_pooled(id)) lifetimes_.push_back(lives_[at(id)]);
  }
  for (size_t i = 0; i < sequence.size(); ++i)
    lifetimes_.push_back({sequence[i].scratch_bytes, static_cast<int32_t>(i), sequence[i].done});
}

Layout WorkspacePlanner::plan(std::vector<Place>& places) const {
  Layout layout = plan_memory(lifetimes_);
  const int64_t begin = pools_.bytes();
  size_t owners = 0;
  for (const ValueId id : order_) {
    const ValueId owner = buffer_[at(id)];
    Operand place;
    if (owner != id) {
      place = places[at(owner)].at;  // an owner comes before what shares its buffer
    } else if (is_pooled(id)) {
      place = in_pool_[at(id)];
    } else {
      place = {begin + layout.offsets[owners++], kInArena};
    }
    const Lifetime& life = own_lives_[at(id)];
    places[at(id)] = {id, place, life.bytes, life.first, life.last};
  }
  return layout;
}

// All values of a slot live at once between the two segments, so that nothing is saved by letting them share
// bytes.
void WorkspacePlanner::fill_pools() {
  if (pools_.empty()) return;
  for (const ValueId id : order_) {
    if (buffer_[at(id)] != id) continue;
    if (is_message(id)) {
      in_pool_[at(id)] = in_messages_[at(id)];
      continue;
    }
    const std::vector<SegmentAt>& segments = used_in_[at(id)];
    if (segments.size() == 1 || !pools_.overlap()) continue;
    const size_t pool = pools_.of(segments);
    const bool of_one_chunk = std::all_of(segments.begin(), segments.end(), [&](const SegmentAt& one) {
      return one.chunk == segments.front().chunk;
    });
    in_pool_[at(id)] = {
        pools_.add_value(pool, of_one_chunk ? segments.front().chunk : 0, lives_[at(id)].bytes),
        base_of_pool(pool)};
  }
  STRATA_CHECK(pools_.all().size() <= kMostPools, "{} pools, and there is room for {}", pools_.all().size(),
               kMostPools);
  pools_.lay_out();
}

void WorkspacePlanner::find_lives(const Graph& graph, const RowViews& views, const Sequence& sequence) {
  for (size_t i = 0; i < sequence.size(); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(sequence[i].node)];
    const auto instruction = static_cast<int32_t>(i);
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId touched : *ids) {
        if (touched == kNone || !graph::is_temporary(graph.value(touched).role)) continue;
        const ValueId id = view_of(views, touched).whole;
        if (!lives(id)) {
          order_.push_back(id);
          buffer_[at(id)] = id;
          own_lives_[at(id)] = {graph.value(id).bytes(), instruction, instruction};
        }
        Lifetime& life = own_lives_[at(id)];
        const bool outlives_pass = life.first < sequence[i].loop.first;
        life.last = std::max({life.last, sequence[i].done, outlives_pass ? sequence[i].loop.last : 0});
        last_use_[at(id)] = outlives_pass ? sequence[i].loop.last + 1 : instruction;
        if (used_in_.empty()) continue;
        auto& segments = used_in_[at(id)];
        if (segments.empty() || segments.back() != sequence[i].segment)
          segments.push_back(sequence[i].segment);
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
      if (is_message(buffer_[at(input)]) || is_message(output)) continue;
      Lifetime& owner = lives_[at(buffer_[at(input)])];
      const Lifetime& made = lives_[at(output)];
      int32_t& last_use = last_use_[at(buffer_[at(input)])];
      if (last_use != instruction || owner.last > sequence[i].done) continue;
      if (owner.bytes != made.bytes || made.first != instruction) continue;
      // What an earlier segment left in a slot gives way to what is for a later one.
      if (pools_.overlap() && sequence[at(owner.first)].segment != sequence[i].segment &&
          sequence[at(made.last)].segment != sequence[i].segment)
        continue;
      // The kernel may read the buffer through another input too.
      if (times_read(node, buffer_[at(input)]) > 1) continue;
      owner.last = made.last;
      last_use = last_use_[at(output)];
      buffer_[at(output)] = buffer_[at(input)];
      if (used_in_.empty()) continue;
      // The output's begin where the owner's end.
      auto& segments = used_in_[at(buffer_[at(input)])];
      const auto& further = used_in_[at(output)];
      segments.insert(segments.end(), further.begin() + (further.front() == segments.back() ? 1 : 0),
                      further.end());
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
