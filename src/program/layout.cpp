#include "program/layout.h"

#include <algorithm>

#include "base/error.h"
#include "graph/reshard.h"
#include "program/early.h"
#include "program/waits.h"
#include "tensor/arena.h"

namespace strata::program {

using graph::kNone;
using graph::Node;
using graph::Role;
using graph::Value;
using graph::ValueId;

namespace {

void add_persistent(ProgramSet& set, const Value& value) {
  const auto [it, is_new] = set.persistent_index.try_emplace(value.name, set.persistent.size());
  if (is_new) {
    set.persistent.push_back({value.name, value.role, value.dtype, value.shape, 0, value.bytes()});
    return;
  }
  // A table may be longer in one program than in another, and then begins alike; a weight may not.
  Persistent& entry = set.persistent[it->second];
  STRATA_CHECK(entry.role == value.role && entry.dtype == value.dtype, "two programs disagree on {}",
               value.name);
  STRATA_CHECK(entry.bytes == value.bytes() || value.role != Role::kParameter, "two programs disagree on {}",
               value.name);
  if (value.bytes() > entry.bytes) {
    entry.bytes = value.bytes();
    entry.shape = value.shape;
  }
}

}  // namespace

void lay_out_batches(ProgramSet& set, const Drafts& drafts) {
  for (const auto& draft : drafts) {
    Program& program = draft->program;
    int64_t slot = 0;
    for (ValueId id = 0; id < program.graph.value_count(); ++id) {
      const Value& value = program.graph.value(id);
      if (value.role != Role::kInput) continue;
      program.places[static_cast<size_t>(id)] = {id, {slot, kInBatch}, value.bytes(), 0, 0};
      slot += align_up(value.bytes(), kBufferAlignment);
    }
    program.batch_bytes = slot;
    set.batch_bytes = std::max(set.batch_bytes, slot * program.request.micro_batches);
  }
}

void lay_out_persistent(ProgramSet& set, const Drafts& drafts) {
  for (const auto& draft : drafts) {
    for (ValueId id = 0; id < draft->program.graph.value_count(); ++id) {
      const Value& value = draft->program.graph.value(id);
      if (graph::is_temporary(value.role) || value.role == Role::kInput || value.role == Role::kCache)
        continue;
      add_persistent(set, value);
    }
  }
  // By role, so that similar values are adjacent: parameters first, then gradients, states, packed weights,
  // tables.
  std::vector<size_t> order(set.persistent.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return set.persistent[a].role < set.persistent[b].role; });
  int64_t offset = 0;
  for (const size_t i : order) {
    set.persistent[i].offset = offset;
    offset += align_up(set.persistent[i].bytes, kBufferAlignment);
  }
  set.batch_offset = offset;
  lay_out_batches(set, drafts);
  set.persistent_bytes = offset + set.batch_bytes;
}

void lay_out_caches(ProgramSet& set, const Drafts& drafts) {
  set.cache_offset = set.persistent_bytes;
  std::unordered_map<std::string, Place> places;
  for (const auto& draft : drafts) {
    Program& program = draft->program;
    for (ValueId id = 0; id < program.graph.value_count(); ++id) {
      const Value& value = program.graph.value(id);
      if (value.role != Role::kCache) continue;
      const auto [found, is_new] = places.try_emplace(
          value.name, Place{id, {set.cache_offset + set.cache_bytes, kInArena}, value.bytes(), 0, 0});
      STRATA_CHECK(found->second.bytes == value.bytes(), "two programs disagree on {}", value.name);
      if (is_new) set.cache_bytes += align_up(value.bytes(), kBufferAlignment);
      program.places[static_cast<size_t>(id)] = found->second;
      program.places[static_cast<size_t>(id)].value = id;
    }
  }
}

namespace {

void emit_places(Draft& draft, const ProgramSet& set, int64_t workspace_offset) {
  Program& program = draft.program;
  for (ValueId id = 0; id < program.graph.value_count(); ++id) {
    const Value& value = program.graph.value(id);
    Place& place = program.places[static_cast<size_t>(id)];
    if (graph::is_temporary(value.role)) {
      if (place.at.base == kInArena) place.at.offset += workspace_offset;
    } else if (value.role != Role::kInput && value.role != Role::kCache) {
      place = {id, {set.at(value.name).offset, kInArena}, value.bytes(), 0, 0};
    }
  }
  for (Pool& pool : program.pools) pool.offset += workspace_offset;
}

// Offset in the workspace of the scratch of instruction i of a segment.
int64_t scratch_offset(const Draft& draft, const SegmentAt& segment, size_t i) {
  const Program& program = draft.program;
  if (segment.segment == Segment::kUpdate)
    return WorkspacePlanner::scratch_offset(program.update_workspace, draft.segment(segment).size(), i);
  if (segment.segment == Segment::kEncode)
    return WorkspacePlanner::scratch_offset(program.encode_workspace, draft.segment(segment).size(), i);
  if (!is_of_micro_batch(segment.segment)) return 0;
  size_t before = 0, all = 0;  // instructions of a micro-batch
  for (const SegmentAt& at : in_order_of_micro_batch(program.chunks())) {
    if (at == segment) before = all;
    all += draft.segment(at).size();
  }
  return program.pool_bytes() + WorkspacePlanner::scratch_offset(program.workspace, all, before + i);
}

std::vector<Instruction>& instructions_of(Program& program, const SegmentAt& at) {
  return program.segments[static_cast<size_t>(at.chunk)][static_cast<size_t>(at.segment)][0];
}

void emit_list(Draft& draft, const SegmentAt& segment, int64_t workspace_offset) {
  Program& program = draft.program;
  const std::vector<Bound>& list = draft.segment(segment);
  std::vector<Instruction>& instructions = instructions_of(program, segment);
  instructions.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Bound& bound = list[i];
    const Node& node = program.graph.nodes()[static_cast<size_t>(bound.node)];
    Instruction& instruction = instructions.emplace_back();
    instruction.first_operand = static_cast<uint32_t>(program.operands.size());
    instruction.node = bound.node;
    instruction.queue = node.op->queue;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids)
        program.operands.push_back(id == kNone ? Operand{} : program.places[static_cast<size_t>(id)].at);
    }
    Operand scratch;
    if (bound.kernel.scratch_bytes > 0)
      scratch = {workspace_offset + scratch_offset(draft, segment, i), kInArena};
    program.operands.push_back(scratch);
    instruction.operand_count = static_cast<uint32_t>(program.operands.size()) - instruction.first_operand;
  }
}

// The bytes that an operand of a given size touches. In pools: of entry 0 only, because within one run of a
// segment the others do not matter; or of the whole pool for any entry.
enum class InSlots { kOfFirst, kOfAny };
ByteRange range_of(const Program& program, const ProgramSet& set, const Operand& operand, int64_t bytes,
                   InSlots slots) {
  int64_t begin = operand.offset;
  if (is_in_pool(operand.base)) {
    const Pool& pool = program.pools[pool_of(operand.base)];
    if (slots == InSlots::kOfAny) return {pool.offset, pool.offset + pool.bytes()};
    begin += pool.offset;
  } else if (operand.base == kInBatch) {
    begin += set.batch_offset;
  }
  return {begin, begin + bytes};
}

// The accesses of a segment's instructions.
std::vector<Access> accesses_of_bytes(const Draft& draft, const ProgramSet& set, const SegmentAt& segment,
                                      InSlots slots = InSlots::kOfFirst) {
  const Program& program = draft.program;
  const std::vector<Bound>& list = draft.segment(segment);
  const std::vector<Instruction>& instructions = program.segment(segment);
  std::vector<Access> accesses;
  accesses.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Node& node = program.node_of(instructions[i]);
    Access& access = accesses.emplace_back(Access{node.op->queue, {}, {}, node.loop});
    access.in_order = node.op == &graph::Reshard::def &&
                      node.attrs.as<graph::ReshardAttrs>().axis == graph::Axis::kPipeline;
    const Operand* operand = program.operands.data() + instructions[i].first_operand;
    const auto add = [&](std::vector<ByteRange>& ranges, int64_t bytes) {
      if (operand->base != Base::kAbsent) ranges.push_back(range_of(program, set, *operand, bytes, slots));
      ++operand;
    };
    for (const ValueId id : node.inputs) add(access.reads, id == kNone ? 0 : program.graph.value(id).bytes());
    for (const ValueId id : node.outputs)
      add(access.writes, id == kNone ? 0 : program.graph.value(id).bytes());
    add(access.writes, list[i].kernel.scratch_bytes);
  }
  return accesses;
}

void emit_waits(Draft& draft, const ProgramSet& set, const SegmentAt& segment) {
  Program& program = draft.program;
  const std::vector<Bound>& list = draft.segment(segment);
  if (!uses_several_queues(program.graph, list)) return;
  std::vector<Instruction>& instructions = instructions_of(program, segment);
  const Waits waits = find_waits(accesses_of_bytes(draft, set, segment));
  for (size_t i = 0; i < list.size(); ++i) {
    instructions[i].first_wait = static_cast<uint32_t>(program.waits.size());
    for (const int32_t other : waits.of(i)) {
      program.waits.push_back(other);
      instructions[static_cast<size_t>(other)].signals = true;
    }
    instructions[i].wait_count = static_cast<uint32_t>(program.waits.size()) - instructions[i].first_wait;
  }
}

void emit_early(Draft& draft, const ProgramSet& set) {
  Program& program = draft.program;
  const Action* action = program.before_update();
  if (action == nullptr || !uses_several_queues(program.graph, draft.segment({Segment::kUpdate}))) return;
  std::vector<Access> accesses =
      accesses_of_bytes(draft, set, {action->segment, action->chunk}, InSlots::kOfAny);
  // Messages in flight may be read by other ranks until the update begins.
  Access& in_flight = accesses.emplace_back();
  for (const Message& message : program.messages) {
    const Pool& pool = program.pools[message.pool];
    if (message.sends) in_flight.reads.push_back({pool.offset, pool.offset + pool.bytes()});
  }
  program.early = find_early(accesses, accesses_of_bytes(draft, set, {Segment::kUpdate}));
}

void set_kernel(Instruction& instruction, const Bound& bound, Program& program) {
  instruction.adds = bound.adds;
  instruction.run = bound.kernel.run;
  instruction.plan = bound.kernel.plan.get();
  instruction.instantiate = bound.kernel.instantiate;
  instruction.finish = bound.kernel.finish;
  program.plans.push_back(bound.kernel.plan);
}

}  // namespace

void emit(Draft& draft, const ProgramSet& set, int64_t workspace_offset) {
  Program& program = draft.program;
  emit_places(draft, set, workspace_offset);
  for (const SegmentAt& at : all_segments(program.chunks())) {
    emit_list(draft, at, workspace_offset);
    emit_waits(draft, set, at);
    // The list that accumulates has the same operands and waits; of kEncode it is a part of the other.
    const auto chunk = static_cast<size_t>(at.chunk), segment = static_cast<size_t>(at.segment);
    const auto& [first, later] = draft.bound[chunk][segment];
    auto& [instructions, later_instructions] = program.segments[chunk][segment];
    auto same = instructions.begin();
    for (const Bound& bound : later) {
      same =
          std::find_if(same, instructions.end(), [&](const Instruction& i) { return i.node == bound.node; });
      set_kernel(later_instructions.emplace_back(*same), bound, program);
    }
    for (size_t i = 0; i < first.size(); ++i) set_kernel(instructions[i], first[i], program);
  }
  emit_early(draft, set);
}

}  // namespace strata::program
