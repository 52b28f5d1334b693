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
  const auto& instructions = program.segment(Segment::kFirst);
  Peak peak{program.workspace.peak_at, program.workspace.alive_at_peak, program.workspace.bytes, {}};
  // Only what the micro-batch uses: indices of lives in the update's workspace mean other instructions.
  std::map<int64_t, PeakBuffer> by_offset;  // values that share a buffer in place count once
  for (const Instruction& instruction : instructions) {
    const graph::Node& node = program.graph.nodes()[static_cast<size_t>(instruction.node)];
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone || program.graph.value(id).role != Role::kActivation) continue;
        const Place& place = program.places[static_cast<size_t>(id)];
        if (place.first <= peak.instruction && peak.instruction <= place.last)
          by_offset[place.at.offset] = {id, place.at.offset, align_up(place.bytes, kBufferAlignment)};
      }
    }
  }
  int64_t values = 0;
  for (const auto& [offset, buffer] : by_offset) {
    peak.buffers.push_back(buffer);
    values += buffer.bytes;
  }
  if (!instructions.empty() && peak.alive > values) {
    const Instruction& at = instructions[static_cast<size_t>(peak.instruction)];
    const Operand& scratch = program.operands[at.first_operand + at.operand_count - 1];
    peak.buffers.push_back({kNone, scratch.offset, peak.alive - values});
  }
  std::stable_sort(peak.buffers.begin(), peak.buffers.end(),
                   [](const PeakBuffer& a, const PeakBuffer& b) { return a.bytes > b.bytes; });
  return peak;
}

size_t largest_program(const ProgramSet& set) {
  size_t largest = 0;
  auto bytes = [&](size_t i) {
    return std::max(set.programs[i].workspace.bytes, set.programs[i].update_workspace.bytes);
  };
  for (size_t i = 1; i < set.programs.size(); ++i) {
    if (bytes(i) > bytes(largest)) largest = i;
  }
  return largest;
}

}  // namespace strata::program
