#include "program/memory_report.h"

#include <algorithm>
#include <map>

#include "tensor/arena.h"

namespace strata::program {

using graph::kNone;
using graph::Role;
using graph::ValueId;

std::vector<Region> arena_regions(const ProgramSet& set) {
  std::vector<const Persistent*> order;
  for (const Persistent& entry : set.persistent) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const Persistent* a, const Persistent* b) { return a->offset < b->offset; });
  std::vector<Region> regions;
  for (const Persistent* entry : order) {
    const std::string name(name_of(entry->role));
    if (regions.empty() || regions.back().name != name) regions.push_back({name, entry->offset, 0, 0});
    regions.back().bytes = align_up(entry->offset + entry->bytes, kBufferAlignment) - regions.back().offset;
    ++regions.back().values;
  }
  if (set.batch_bytes > 0) regions.push_back({"batch", set.batch_offset, set.batch_bytes, 0});
  if (set.arena_bytes > set.workspace_offset)
    regions.push_back({"workspace", set.workspace_offset, set.arena_bytes - set.workspace_offset, 0});
  return regions;
}

Peak workspace_peak(const Program& program) {
  Peak peak{program.workspace.peak_at, program.workspace.alive_at_peak, program.workspace.bytes, {}};
  // Only buffers of the micro-batch: indices of lifetimes in the update's workspace refer to other
  // instructions.
  std::map<int64_t, PeakBuffer> by_offset;  // values that share a buffer in place count once
  for (const SegmentAt& segment : in_order_of_micro_batch(program.chunks())) {
    for (const Instruction& instruction : program.segment(segment)) {
      const graph::Node& node = program.node_of(instruction);
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId touched : *ids) {
          if (touched == kNone || !graph::is_temporary(program.graph.value(touched).role)) continue;
          const ValueId id = view_of(program.views, touched).whole;
          const Place& place = program.places[static_cast<size_t>(id)];
          if (is_in_pool(place.at.base)) continue;
          if (place.first <= peak.instruction && peak.instruction <= place.last)
            by_offset[place.at.offset] = {id, place.at.offset, align_up(place.bytes, kBufferAlignment)};
        }
      }
    }
  }
  int64_t values = 0;
  for (const auto& [offset, buffer] : by_offset) {
    peak.buffers.push_back(buffer);
    values += buffer.bytes;
  }
  const InstructionAt peak_at = instruction_at(program, static_cast<size_t>(peak.instruction));
  if (program.micro_batch_instructions() > 0 && peak.alive > values) {
    const Instruction& at = program.segment(peak_at.segment)[peak_at.index];
    const Operand& scratch = program.operands[at.first_operand + at.operand_count - 1];
    peak.buffers.push_back({kNone, scratch.offset, peak.alive - values});
  }
  std::stable_sort(peak.buffers.begin(), peak.buffers.end(),
                   [](const PeakBuffer& a, const PeakBuffer& b) { return a.bytes > b.bytes; });
  return peak;
}

int64_t workspace_bytes(const Program& program) {
  return std::max({program.pool_bytes() + program.workspace.bytes, program.update_workspace.bytes,
                   program.encode_workspace.bytes});
}

size_t largest_program(const ProgramSet& set) {
  size_t largest = 0;
  const auto bytes = [&](size_t i) { return workspace_bytes(set.programs[i]); };
  for (size_t i = 1; i < set.programs.size(); ++i) {
    if (bytes(i) > bytes(largest)) largest = i;
  }
  return largest;
}

int64_t save_staging_bytes(const ProgramSet& set) {
  int64_t saved = 0;
  for (const Persistent& entry : set.persistent) {
    if (entry.role == Role::kParameter || entry.role == Role::kState) saved += entry.bytes;
  }
  if (set.options.memory_budget == 0) return saved;
  return std::clamp<int64_t>(set.options.memory_budget - set.arena_bytes, 0, saved);
}

}  // namespace strata::program
