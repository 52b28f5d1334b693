#include "program/draft.h"

#include <algorithm>

#include "program/pipeline.h"
#include "program/segments.h"
#include "program/waits.h"
#include "tensor/arena.h"

namespace strata::program {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Queue;
using graph::Role;
using graph::ValueId;

namespace {

// Whether several nodes add to a value: of all micro-batches of a step, or of one.
enum class Adds { kNever, kInMicroBatch, kInStep };

Adds adds_to(const Graph& graph, ValueId id) {
  if (id == kNone) return Adds::kNever;
  const Role role = graph.value(id).role;
  if (role == Role::kTerms) return Adds::kInMicroBatch;
  return role == Role::kGradient || role == Role::kMetric ? Adds::kInStep : Adds::kNever;
}

// Segments in the order of their first actions; those that are in no script come first.
std::vector<NodesOf> in_order_of_script(const Script& script, std::vector<NodesOf> segments) {
  const auto first = [&](const NodesOf& one) {
    return std::find_if(script.begin(), script.end(),
                        [&](const Action& action) {
                          return SegmentAt{action.segment, action.chunk} == one.at;
                        }) -
           script.begin();
  };
  std::vector<std::pair<std::ptrdiff_t, NodesOf>> keyed;
  for (NodesOf& one : segments) {
    const auto at = first(one);
    keyed.emplace_back(at == std::ssize(script) ? -1 : at, std::move(one));
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < keyed.size(); ++i) segments[i] = std::move(keyed[i].second);
  return segments;
}

// The weights whose packed layouts updates write.
std::vector<bool> encoded_by_updates(const Graph& graph) {
  std::vector<bool> written(static_cast<size_t>(graph.value_count()), false);
  for (const Node& node : graph.nodes()) {
    if (node.phase != graph::Phase::kUpdate) continue;
    for (const ValueId output : node.outputs) {
      if (output != kNone && graph.value(output).role == Role::kEncoded)
        written[static_cast<size_t>(output)] = true;
    }
  }
  return written;
}

// Binds the nodes of a segment twice: as its first action of a step overwrites accumulators, and as later
// ones add to them. An accumulator that several segments write is overwritten by the first of them in the
// schedule: `written` holds the results of the first actions of the segments before this one.
void bind_segment(Draft& draft, const NodesOf& segment, bool has_later, Binder& binder,
                  std::vector<bool>& written) {
  const Graph& graph = draft.program.graph;
  auto& [first, later] =
      draft.bound[static_cast<size_t>(segment.at.chunk)][static_cast<size_t>(segment.at.segment)];
  std::vector<bool> adds;
  const auto bind = [&](int32_t i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    Bound bound{.node = i};
    for (size_t o = 0; o < std::min<size_t>(adds.size(), 32); ++o) bound.adds |= uint32_t{adds[o]} << o;
    if (node.op->has_kernel()) bound.kernel = binder.bind({graph, node}, adds);
    return bound;
  };
  for (const int32_t i : segment.nodes) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    adds.clear();
    bool differs = false;
    for (const ValueId output : node.outputs) {
      // A sum over ranks takes the place of its terms.
      const bool in_place = std::find(node.inputs.begin(), node.inputs.end(), output) != node.inputs.end();
      const Adds how = in_place ? Adds::kNever : adds_to(graph, output);
      adds.push_back(how != Adds::kNever && written[static_cast<size_t>(output)]);
      if (how == Adds::kNever) continue;
      differs = differs || (how == Adds::kInStep && !adds.back());
      written[static_cast<size_t>(output)] = true;
    }
    first.push_back(bind(i));
    if (!has_later) continue;
    later.push_back(first.back());
    if (!differs) continue;
    for (size_t o = 0; o < adds.size(); ++o)
      adds[o] = adds[o] || adds_to(graph, node.outputs[o]) == Adds::kInStep;
    later.back() = bind(i);
    // Both have the same operands.
    const int64_t scratch = std::max(first.back().kernel.scratch_bytes, later.back().kernel.scratch_bytes);
    first.back().kernel.scratch_bytes = later.back().kernel.scratch_bytes = scratch;
  }
}

// For each instruction of a list, the last one that may run concurrently with it: itself on the compute
// queue; otherwise the predecessor of the compute instruction that waits for it, or the last of the list.
std::vector<int32_t> last_concurrent(const Program& program, const std::vector<Bound>& list) {
  std::vector<int32_t> last(list.size());
  for (size_t i = 0; i < list.size(); ++i) last[i] = static_cast<int32_t>(i);
  if (!uses_several_queues(program.graph, list)) return last;
  const std::vector<Access> accesses = accesses_of_values(program, list);
  const Waits waits = find_waits(accesses);
  std::array<std::vector<size_t>, graph::kQueues> running;
  for (size_t i = 0; i < list.size(); ++i) {
    if (accesses[i].loop != kNone) {
      // Until the pass ends. Instructions outside may still run after the loop.
      size_t end = i + 1;
      while (end < list.size() && accesses[end].loop == accesses[i].loop) ++end;
      if (accesses[i].queue != Queue::kCompute) last[i] = static_cast<int32_t>(end) - 1;
      continue;
    }
    if (accesses[i].queue != Queue::kCompute) {
      running[static_cast<size_t>(accesses[i].queue)].push_back(i);
      last[i] = static_cast<int32_t>(list.size()) - 1;
      continue;
    }
    for (size_t q = 0; q < running.size(); ++q) {
      const auto done = [&](size_t one) { return static_cast<int32_t>(one) <= waits.done[i][q]; };
      auto one = running[q].begin();
      for (; one != running[q].end() && done(*one); ++one) last[*one] = static_cast<int32_t>(i) - 1;
      running[q].erase(running[q].begin(), one);
    }
  }
  return last;
}

// Records the loops of the instructions from `begin` on.
void note_loops(const Graph& graph, Sequence& sequence, size_t begin) {
  const auto loop_of = [&](size_t i) { return graph.nodes()[static_cast<size_t>(sequence[i].node)].loop; };
  for (size_t end; begin < sequence.size(); begin = end) {
    for (end = begin + 1; end < sequence.size() && loop_of(end) == loop_of(begin);) ++end;
    for (size_t i = begin; loop_of(begin) != kNone && i < end; ++i)
      sequence[i].loop = {static_cast<int32_t>(begin), static_cast<int32_t>(end) - 1};
  }
}

Sequence sequence_of(const Draft& draft, const std::vector<SegmentAt>& segments) {
  Sequence sequence;
  for (const SegmentAt& segment : segments) {
    const std::vector<Bound>& list = draft.segment(segment);
    const std::vector<int32_t> last = last_concurrent(draft.program, list);
    const auto begin = static_cast<int32_t>(sequence.size());
    for (size_t i = 0; i < list.size(); ++i)
      sequence.push_back({list[i].node, list[i].kernel.scratch_bytes, segment, begin + last[i]});
    note_loops(draft.program.graph, sequence, static_cast<size_t>(begin));
  }
  return sequence;
}

// Memory for setup beyond that of the planned segments.
int64_t setup_bytes(const Draft& draft) {
  int64_t bytes = 0;
  for (const Bound& bound : draft.segment({Segment::kSetup}))
    bytes = std::max(bytes, align_up(bound.kernel.scratch_bytes, kBufferAlignment));
  return bytes;
}

}  // namespace

bool uses_several_queues(const Graph& graph, const std::vector<Bound>& list) {
  return std::any_of(list.begin(), list.end(), [&](const Bound& bound) {
    return graph.nodes()[static_cast<size_t>(bound.node)].op->queue != Queue::kCompute;
  });
}

std::vector<Access> accesses_of_values(const Program& program, const std::vector<Bound>& list) {
  const Graph& graph = program.graph;
  // As if values were consecutive, with a byte at least; views at their place in the whole.
  std::vector<int64_t> begin(static_cast<size_t>(graph.value_count()) + 1, 0);
  for (ValueId id = 0; id < graph.value_count(); ++id)
    begin[static_cast<size_t>(id) + 1] =
        begin[static_cast<size_t>(id)] + std::max<int64_t>(graph.value(id).bytes(), 1);
  const auto range = [&](ValueId id) {
    const RowView view = view_of(program.views, id);
    const int64_t first = begin[static_cast<size_t>(view.whole)] + view.offset;
    return ByteRange{first, first + std::max<int64_t>(graph.value(id).bytes(), 1)};
  };
  std::vector<Access> accesses;
  accesses.reserve(list.size());
  for (const Bound& bound : list) {
    const Node& node = graph.nodes()[static_cast<size_t>(bound.node)];
    Access& access = accesses.emplace_back(Access{node.op->queue, {}, {}, node.loop});
    for (const ValueId id : node.inputs) {
      if (id != kNone) access.reads.push_back(range(id));
    }
    for (const ValueId id : node.outputs) {
      if (id != kNone) access.writes.push_back(range(id));
    }
  }
  return accesses;
}

void bind_segments(Draft& draft, Binder& binder) {
  Program& program = draft.program;
  const Request& request = program.request;
  const int32_t chunks = program.chunks();
  draft.bound.resize(static_cast<size_t>(chunks));
  const std::vector<bool> nothing(static_cast<size_t>(program.graph.value_count()), false);
  std::vector<bool> of_micro_batch = nothing, written;
  for (const NodesOf& segment :
       in_order_of_script(program.script, split_into_segments(program.graph, draft.backward, chunks))) {
    const bool repeats = is_of_micro_batch(segment.at.segment);
    const bool has_later = repeats && (request.micro_batches > 1 || request.kind == Kind::kEvaluate);
    written = repeats ? of_micro_batch : nothing;
    bind_segment(draft, segment, has_later, binder, written);
    if (repeats) of_micro_batch = written;
    if (segment.at.segment == Segment::kEncode && request.kind == Kind::kTrain) {
      // After an update, only the layouts that it did not write.
      auto& [all, rest] = draft.bound[0][static_cast<size_t>(Segment::kEncode)];
      const std::vector<bool> is_written = encoded_by_updates(program.graph);
      std::copy_if(all.begin(), all.end(), std::back_inserter(rest), [&](const Bound& bound) {
        return !is_written[static_cast<size_t>(
            program.graph.nodes()[static_cast<size_t>(bound.node)].outputs.front())];
      });
    }
    for (const Bound& bound : draft.segment(segment.at))
      program.scratch_peak = std::max(program.scratch_peak, bound.kernel.scratch_bytes);
  }
  program.places.assign(static_cast<size_t>(program.graph.value_count()), {});
  Pools pools(program.script, static_cast<int32_t>(request.micro_batches), chunks, draft.backward);
  std::vector<Operand> in_messages = place_messages(draft, pools);
  draft.workspaces.emplace_back(program.graph, program.views,
                                sequence_of(draft, in_order_of_micro_batch(chunks)), std::move(pools),
                                std::move(in_messages));
  draft.workspaces.emplace_back(program.graph, program.views, sequence_of(draft, {{Segment::kUpdate}}));
  draft.workspaces.emplace_back(program.graph, program.views, sequence_of(draft, {{Segment::kEncode}}));
}

int64_t least_workspace_bytes(const Draft& draft) {
  int64_t bytes = setup_bytes(draft);
  for (const WorkspacePlanner& workspace : draft.workspaces) bytes = std::max(bytes, workspace.least_bytes());
  return bytes;
}

int64_t workspace_bytes(Draft& draft) {
  Program& program = draft.program;
  if (!draft.is_placed) {
    program.pools = draft.workspaces[0].pools();
    program.workspace = draft.workspaces[0].plan(program.places);
    program.update_workspace = draft.workspaces[1].plan(program.places);
    program.encode_workspace = draft.workspaces[2].plan(program.places);
    for (const auto& [id, view] : program.views) {
      Place& place = program.places[static_cast<size_t>(id)];
      place = program.places[static_cast<size_t>(view.whole)];
      place.value = id;
      place.at.offset += view.offset;
      place.bytes = program.graph.value(id).bytes();
    }
    draft.is_placed = true;
  }
  return std::max({setup_bytes(draft), program.pool_bytes() + program.workspace.bytes,
                   program.update_workspace.bytes, program.encode_workspace.bytes});
}

}  // namespace strata::program
